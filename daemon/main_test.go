package daemon

import (
	"testing"

	"go.uber.org/goleak"

	"tandem/models/modelstest"
)

func TestMain(m *testing.M) {
	// fasthttp keeps the time of the Date header in a goroutine that lives as long as the process.
	modelstest.Main(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}
