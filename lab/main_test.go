package lab_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// atOnce is how many of these tests run at the same time, whatever the number of processors: they wait for calls more than they
// compute.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", atOnce)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			_ = os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}
