package api

import (
	"net/http"

	"tandem/models"
)

func (s *Server) operatorTrunkTestRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/trunks/:id/test", id: "testCustomerTrunk", tag: "trunks", summary: "Find out what is wrong with an outbound trunk",
			details: "As POST /v1/trunks/:id/test: configuration, DNS, reachability, OPTIONS, REGISTER and, with to, a call, each step with its evidence and what to do.",
			role:    models.RoleOperator, request: trunkTestCreate{}, bodyOptional: true, status: ok, response: trunkReport{}, handle: s.testTrunk,
			codes: []string{codeNoNodeAvailable, codeRateLimited}},
	}
}

// customerOfTrunk is whose a trunk is: the key's customer, or, for an operator, the trunk's.
func (s *Server) customerOfTrunk(r *request, trunkID string) (string, error) {
	if r.operator == nil {
		return r.customer, nil
	}
	trunk, err := s.store.TrunkByID(r.ctx, trunkID)
	if err != nil {
		return "", orNotFound(err, "trunk")
	}
	r.concerns(trunk.CustomerID, trunk.ID)
	return trunk.CustomerID, nil
}
