package lab_test

import (
	"flag"
	"os"
	"testing"

	"tandem/models/modelstest"
)

// atOnce is how many of these tests run at the same time, whatever the number of processors: they wait for calls more than they
// compute.
const atOnce = "6"

// cleaned runs the tests and removes the binary that they built.
type cleaned struct{ *testing.M }

func (c cleaned) Run() int {
	code := c.M.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	return code
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", atOnce)
	modelstest.Main(cleaned{m})
}
