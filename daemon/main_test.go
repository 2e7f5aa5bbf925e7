package daemon

import (
	"testing"

	"go.uber.org/goleak"

	"tandem/models/modelstest"
)

func TestMain(m *testing.M) {
	modelstest.Main(m,
		// fasthttp keeps the time of the Date header in a goroutine that lives as long as the process, and the cleaner of a
		// stopped server's workers sleeps up to ten seconds before it sees that.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
	)
}
