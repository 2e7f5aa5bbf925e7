package dialplan

import (
	"testing"

	"tandem/models/modelstest"
)

func TestMain(m *testing.M) { modelstest.Main(m) }
