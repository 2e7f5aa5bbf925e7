package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// TestTellRegistration: what a node says of a trunk's registration reaches every application of its customer that has a
// webhook_url, in the words of the catalogue.
func TestTellRegistration(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer, node := modelstest.Customer(t, s, 0), modelstest.Node(t, s)
		first, second := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		require.NoError(t, s.CreateApplication(ctx, &models.Application{CustomerID: customer.ID, Name: "without a webhook_url"}))
		modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		trunk := modelstest.OutboundTrunk(t, s, customer)
		trunk.Register = true
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		for _, registered := range []bool{true, false} {
			state := map[bool]string{true: "REGED", false: "FAIL_WAIT"}[registered]
			require.NoError(t, s.RecordGateways(ctx, []models.GatewayReport{{
				GatewayStatus: models.GatewayStatus{NodeID: node.ID, TrunkID: trunk.ID, State: state, Status: "UP"}, Registered: &registered,
			}}, tellRegistration))
		}
		require.NoError(t, s.TellRegistrations(ctx, []string{node.ID}, s.Now().Add(models.RegistrationEnds), tellRegistration))
		told := map[string][]string{}
		for range 2 {
			claimed, err := s.ClaimStreams(ctx, "w", time.Minute, 4, 4, 8)
			require.NoError(t, err)
			require.Len(t, claimed, 2)
			for _, c := range claimed {
				var body struct {
					Type string         `json:"type"`
					Call map[string]any `json:"call"`
					Data map[string]any `json:"data"`
				}
				require.NoError(t, json.Unmarshal(c.Event.Body, &body))
				require.Nil(t, body.Call)
				require.NoError(t, webhooks.CheckData(body.Type, body.Data))
				require.Equal(t, node.ID, body.Data["node_id"])
				require.Equal(t, map[string]any{"id": trunk.ID, "name": trunk.Name, "gateway_name": trunk.GatewayName}, body.Data["trunk"])
				told[c.EndpointID] = append(told[c.EndpointID], body.Type+" "+body.Data["state"].(string))
				require.NoError(t, s.FinishDeliveries(ctx, []models.Outcome{{
					SubjectID: c.SubjectID, EndpointID: c.EndpointID, LeaseToken: c.LeaseToken, EventID: c.Event.ID, Result: models.ResultDelivered,
				}}))
			}
		}
		want := []string{"trunk.registered REGED", "trunk.unregistered FAIL_WAIT"}
		require.Equal(t, map[string][]string{first.ID: want, second.ID: want}, told)
	})
}
