package modelstest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

var serial atomic.Int64

// Serial returns a number that no other call in this process got.
func Serial() int64 { return serial.Add(1) }

// Customer creates a customer with a balance in millionths.
func Customer(t testing.TB, s *models.Store, balanceMicros int64) *models.Customer {
	t.Helper()
	customer := &models.Customer{Name: fmt.Sprintf("Customer %d", Serial()), BalanceMicros: balanceMicros}
	require.NoError(t, s.CreateCustomer(t.Context(), customer))
	return customer
}

// Application creates an application of a customer, with URLs on loopback and a webhook secret.
func Application(t testing.TB, s *models.Store, customer *models.Customer) *models.Application {
	t.Helper()
	app := &models.Application{
		CustomerID: customer.ID, Name: fmt.Sprintf("Application %d", Serial()),
		AnswerURL: "http://127.0.0.1/answer", WebhookURL: "http://127.0.0.1/webhook", WebhookSecret: "a webhook secret of the tests",
	}
	require.NoError(t, s.CreateApplication(t.Context(), app))
	return app
}

// OutboundTrunk creates an active outbound trunk of a customer.
func OutboundTrunk(t testing.TB, s *models.Store, customer *models.Customer) *models.Trunk {
	t.Helper()
	number := Serial()
	trunk := &models.Trunk{
		CustomerID: customer.ID, Name: fmt.Sprintf("Outbound %d", number), Direction: models.Outbound, GatewayName: fmt.Sprintf("gateway-%d", number),
		Proxy: "127.0.0.1:5080", Username: "tandem", Password: "a SIP password of the tests", Realm: "127.0.0.1", FromDomain: "127.0.0.1", IsActive: true,
	}
	require.NoError(t, s.CreateTrunk(t.Context(), trunk))
	return trunk
}

// InboundTrunk creates an active inbound trunk of a customer with an address of its own and an application for numbers that
// are no DIDs.
func InboundTrunk(t testing.TB, s *models.Store, customer *models.Customer, app *models.Application) *models.Trunk {
	t.Helper()
	number := Serial()
	trunk := &models.Trunk{
		CustomerID: customer.ID, Name: fmt.Sprintf("Inbound %d", number), Direction: models.Inbound,
		InboundIPs: []string{fmt.Sprintf("198.18.%d.%d", number/256%256, number%256)}, IsActive: true,
	}
	if app != nil {
		trunk.ApplicationID = &app.ID
	}
	require.NoError(t, s.CreateTrunk(t.Context(), trunk))
	return trunk
}

// DID creates an active number of a customer, routed to the application.
func DID(t testing.TB, s *models.Store, customer *models.Customer, app *models.Application) *models.DID {
	t.Helper()
	did := &models.DID{CustomerID: customer.ID, NumberE164: fmt.Sprintf("+1555%07d", Serial()), Provider: "test"}
	if app != nil {
		did.ApplicationID = &app.ID
	}
	require.NoError(t, s.CreateDID(t.Context(), did))
	return did
}

// Call creates a dialing outbound call of an application, without a hold.
func Call(t testing.TB, s *models.Store, app *models.Application) *models.Call {
	t.Helper()
	call := &models.Call{
		CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing,
		From: "+15550000001", To: "+15550000002",
	}
	require.NoError(t, s.CreateCall(t.Context(), call))
	return call
}

// Node creates an active node.
func Node(t testing.TB, s *models.Store) *models.Node {
	t.Helper()
	node := &models.Node{
		Name: fmt.Sprintf("node-%d", Serial()), ESLAddr: "127.0.0.1:8021", Password: "an ESL password of the tests", ConfDir: t.TempDir(), IsActive: true,
	}
	require.NoError(t, s.CreateNode(t.Context(), node))
	return node
}
