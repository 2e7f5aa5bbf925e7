package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"tandem/models"
)

var operatorsAbout = about{
	title: "Tandem, for operators",
	description: "What runs an installation: nodes, customers and their keys, calls of all customers, trunks, webhooks, money, and the audit trail.\n\n" +
		"Every failure has the shape {\"error\": {\"code\", \"message\"}}; branch on code. Unknown fields and query parameters are refused.",
	security: "An operator's token, op_….",
}

// operatorRoutes is the table of the operator API: each noun has its rows in its own file. Every row has a role; GET needs
// viewer.
func (s *Server) operatorRoutes() []route {
	return slices.Concat(
		s.operatorMetaRoutes(),
		s.operatorVersionRoutes(),
		s.operatorTokenRoutes(),
		s.operatorAuditRoutes(),
		s.operatorCustomerRoutes(),
		s.operatorAccountRoutes(),
		s.operatorLimitRoutes(),
		s.operatorKeyRoutes(),
		s.operatorLedgerRoutes(),
		s.operatorRateRoutes(),
		s.operatorRateImportRoutes(),
		s.operatorNodeRoutes(),
		s.operatorNodeStandingRoutes(),
		s.operatorConfigRoutes(),
		s.operatorDIDRoutes(),
		s.operatorDIDImportRoutes(),
		s.operatorCallRoutes(),
		s.operatorTrunkRoutes(),
		s.operatorTrunkTestRoutes(),
		s.operatorWebhookRoutes(),
		s.operatorEventRoutes(),
		s.operatorStrangerRoutes(),
		s.operatorBlockRoutes(),
	)
}

func (s *Server) operatorMetaRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/me", id: "operatorMe", tag: "operators", summary: "Whose token this is, and its role",
			role: models.RoleViewer, status: ok, response: operatorObject{}, handle: s.operatorMe},
		{method: http.MethodGet, path: "/operator/v1/openapi.json", id: "operatorOpenapi", tag: "meta", summary: "This document",
			status: ok, response: anyObject{}, public: true, handle: s.operatorOpenapi},
	}
}

// authenticateOperator finds the operator of the bearer header. The comparison in constant time is AuthenticateOperator's.
func (s *Server) authenticateOperator(c *fiber.Ctx) (*models.Operator, error) {
	token := bearer(c)
	if token == "" {
		return nil, &Error{Code: codeUnauthorized, Message: "an operator's token is required: send it in the header Authorization, after the word Bearer"}
	}
	operator, err := s.store.AuthenticateOperator(c.UserContext(), token)
	if errors.Is(err, models.ErrNotFound) {
		return nil, &Error{Code: codeUnauthorized, Message: "the operator's token is not valid"}
	}
	if err != nil {
		return nil, fmt.Errorf("authenticate operator: %w", err)
	}
	return operator, nil
}
