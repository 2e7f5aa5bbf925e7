package daemon

import (
	"runtime"
	"runtime/debug"

	"tandem/api"
)

// Build is which build of the program runs, as the operator API tells it.
type Build = api.Build

// ThisBuild reads what the Go tool has written into the program: the module's version and the commit of the working copy. A program that was built
// without version control has the version devel and no commit.
func ThisBuild() Build {
	build := Build{Version: "devel", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		build.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			build.Commit = setting.Value
		case "vcs.modified":
			build.Modified = setting.Value == "true"
		}
	}
	return build
}
