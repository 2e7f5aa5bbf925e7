package api

import (
	"net/http"

	"tandem/models"
)

// Build is which build of the program runs.
type Build struct {
	Version string `json:"version" doc:"The module's version, or devel." example:"v1.4.0"`
	Commit  string `json:"commit" doc:"The commit that it was built from; empty where the build does not know."`
	// Modified says that the commit alone does not make this build: the working copy had changes.
	Modified bool   `json:"modified" doc:"Whether it was built from a working copy with changes besides."`
	Go       string `json:"go" doc:"The Go that it was built with." example:"go1.26.0"`
}

func (s *Server) operatorVersionRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/version", id: "getVersion", tag: "meta", summary: "Which build answers",
			details: "Of the controller that takes the request: while an installation is updated, they differ.",
			role:    models.RoleViewer, status: ok, response: Build{}, handle: s.getVersion},
	}
}

func (s *Server) getVersion(*request) (any, error) { return s.build, nil }
