package calls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/lab"
	"tandem/models/modelstest"
)

// fitting is how the switches and managers of a test differ from the usual ones.
type fitting struct {
	edit    []func(*Config)
	without string   // a module that freeswitch-conf loads and these switches lack
	with    []string // modules that the simulated switch has besides
}

func (f fitting) onSwitches(t *testing.T, fn func(t *testing.T, l *live)) {
	t.Helper()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		fn(t, f.simulated(t, modelstest.Open(t), 4))
	})
	t.Run("freeswitch", func(t *testing.T) {
		t.Parallel()
		lab.Require(t)
		fn(t, f.real(t, modelstest.Open(t)))
	})
}

// dropModule takes a module out of what a real switch loads.
func (f fitting) dropModule(confDir string) error {
	if f.without == "" {
		return nil
	}
	path := filepath.Join(confDir, "autoload_configs", "modules.conf.xml")
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), `<load module="`+f.without+`"/>`, "")), 0o600)
}
