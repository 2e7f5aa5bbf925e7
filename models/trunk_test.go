package models_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestTrunk(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		active := func() (ids []string) {
			t.Helper()
			trunks, err := s.ActiveOutboundTrunks(ctx, customer.ID)
			require.NoError(t, err)
			for i := range trunks {
				ids = append(ids, trunks[i].ID)
			}
			return ids
		}
		require.Empty(t, active())
		first := modelstest.OutboundTrunk(t, s, customer)
		second := modelstest.OutboundTrunk(t, s, customer)
		found, err := s.Trunk(ctx, customer.ID, first.ID)
		require.NoError(t, err)
		require.Equal(t, first, found)

		taken := &models.Trunk{CustomerID: other.ID, Direction: models.Outbound, GatewayName: first.GatewayName}
		require.ErrorIs(t, s.CreateTrunk(ctx, taken), models.ErrGatewayNameExists, "unique across customers")
		renamed := *second
		renamed.GatewayName = first.GatewayName
		require.ErrorIs(t, s.UpdateTrunk(ctx, &renamed), models.ErrGatewayNameExists)

		require.Equal(t, []string{first.ID, second.ID}, active(), "the oldest first")
		second.Routing = models.TrunkRouting{
			Priority: -1, Weight: 7, AllowedPrefixes: []string{"+49", "+1"}, StripPrefix: "+", AddPrefix: "00", CallerIDPolicy: models.CallerIDFixed, CallerID: "+15550100001",
		}
		require.NoError(t, s.UpdateTrunk(ctx, second))
		found, err = s.Trunk(ctx, customer.ID, second.ID)
		require.NoError(t, err)
		require.Equal(t, second, found)
		require.Equal(t, []string{second.ID, first.ID}, active(), "the lowest priority first")
		first.IsActive, first.Password = false, "another password"
		require.NoError(t, s.UpdateTrunk(ctx, first))
		found, err = s.Trunk(ctx, customer.ID, first.ID)
		require.NoError(t, err)
		require.Equal(t, first, found)
		require.Equal(t, []string{second.ID}, active())
		all, err := s.AllTrunks(ctx)
		require.NoError(t, err)
		require.Len(t, all, 2, "inactive ones too")

		app := modelstest.Application(t, s, customer)
		call := &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, TrunkID: &first.ID, Direction: models.Outbound, Status: models.CallDialing}
		require.NoError(t, s.CreateCall(ctx, call))
		require.ErrorIs(t, s.DeleteTrunk(ctx, customer.ID, first.ID), models.ErrInUse)
		call.Status = models.CallBusy
		require.NoError(t, s.TransitionCall(ctx, call, []string{models.CallDialing}))
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, first.ID))
		require.NoError(t, s.CreateTrunk(ctx, taken), "a deleted trunk gives its name back")
	})
}

func TestInboundAddresses(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		create := func(address string) (*models.Trunk, error) {
			trunk := &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: []string{address}, IsActive: true}
			return trunk, s.CreateTrunk(ctx, trunk)
		}
		created := map[string]*models.Trunk{}
		for given, normal := range map[string]string{
			"192.0.2.7": "192.0.2.7", "198.51.100.77/24": "198.51.100.0/24", "10.0.0.1/32": "10.0.0.1", "::ffff:203.0.113.1": "203.0.113.1",
			"2001:DB8::1": "2001:db8::1", "2001:db8:1::/48": "2001:db8:1::/48", "::ffff:100.64.0.0/112": "100.64.0.0/16", "0a00::/16": "a00::/16",
		} {
			trunk, err := create(given)
			require.NoError(t, err, given)
			require.Equal(t, []string{normal}, trunk.InboundIPs)
			created[normal] = trunk
		}
		for _, overlap := range []string{"192.0.2.7", "192.0.2.0/24", "0.0.0.0/0", "198.51.100.0/24", "198.51.100.255", "198.51.100.128/25", "198.51.0.0/16", "2001:db8::/32", "2001:db8:1:2::3", "::/0"} {
			_, err := create(overlap)
			require.ErrorIs(t, err, models.ErrInboundIPExists, overlap)
		}
		for _, bad := range []string{"x", "1.2.3", "1.2.3.4/33", "fe80::1%eth0", "::ffff:1.2.3.4/64", "1.2.3.4/"} {
			_, err := create(bad)
			require.ErrorContains(t, err, "inbound address", bad)
		}
		for address, want := range map[string]string{
			"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "198.51.100.0": "198.51.100.0/24", "198.51.100.255": "198.51.100.0/24",
			"2001:db8:1:ffff::": "2001:db8:1::/48", "2001:db8::1": "2001:db8::1", "100.64.255.1": "100.64.0.0/16", "10.0.0.1": "10.0.0.1", "a00::1": "a00::/16",
		} {
			trunk, err := s.InboundTrunkByAddress(ctx, netip.MustParseAddr(address))
			require.NoError(t, err, address)
			require.Equal(t, created[want].ID, trunk.ID, address)
		}
		for _, stranger := range []string{"192.0.2.6", "192.0.2.8", "198.51.101.0", "198.51.99.255", "2001:db8::2", "2001:db8:2::", "::", "255.255.255.255", "10.0.0.0"} {
			_, err := s.InboundTrunkByAddress(ctx, netip.MustParseAddr(stranger))
			require.ErrorIs(t, err, models.ErrNotFound, stranger)
		}
		moved := *created["192.0.2.7"]
		moved.InboundIPs = []string{"198.51.100.9"}
		require.ErrorIs(t, s.UpdateTrunk(ctx, &moved), models.ErrInboundIPExists)
		moved.InboundIPs = []string{"192.0.2.0/28"}
		require.NoError(t, s.UpdateTrunk(ctx, &moved), "it does not collide with itself")
		moved.IsActive = false
		require.NoError(t, s.UpdateTrunk(ctx, &moved))
		_, err := s.InboundTrunkByAddress(ctx, netip.MustParseAddr("192.0.2.7"))
		require.ErrorIs(t, err, models.ErrNotFound, "inactive")
		require.NoError(t, s.DeleteTrunk(ctx, customer.ID, moved.ID))
		_, err = create("192.0.0.0/16")
		require.NoError(t, err, "a deleted trunk gives its address back")
	})
}

func TestSeveralInboundAddresses(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		trunk := &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: []string{"203.0.113.9/28", "2001:DB8::1", "192.0.2.7"}, IsActive: true}
		require.NoError(t, s.CreateTrunk(ctx, trunk))
		want := []string{"203.0.113.0/28", "2001:db8::1", "192.0.2.7"}
		require.Equal(t, want, trunk.InboundIPs, "their order is kept")
		same := func(address string) {
			t.Helper()
			found, err := s.InboundTrunkByAddress(ctx, netip.MustParseAddr(address))
			require.NoError(t, err)
			require.Equal(t, trunk, found)
		}
		for _, address := range []string{"203.0.113.15", "2001:db8::1", "192.0.2.7"} {
			same(address)
		}
		one, err := s.Trunk(ctx, customer.ID, trunk.ID)
		require.NoError(t, err)
		require.Equal(t, want, one.InboundIPs)
		listed, _, err := s.ListTrunks(ctx, customer.ID, models.Page{})
		require.NoError(t, err)
		require.Equal(t, want, listed[0].InboundIPs)
		all, err := s.AllTrunks(ctx)
		require.NoError(t, err)
		require.Equal(t, want, all[0].InboundIPs)

		other := &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: []string{"198.51.100.1", "203.0.113.14"}}
		require.ErrorIs(t, s.CreateTrunk(ctx, other), models.ErrInboundIPExists)
		other.InboundIPs = []string{"198.51.100.1"}
		require.NoError(t, s.CreateTrunk(ctx, other), "nothing is left of what was refused")
		twice := &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: []string{"10.0.0.1", "10.0.0.0/24"}}
		require.ErrorIs(t, s.CreateTrunk(ctx, twice), models.ErrInboundIPExists)
		many := &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: make([]string, models.MaxInboundIPs+1)}
		require.ErrorContains(t, s.CreateTrunk(ctx, many), "more than 64")

		trunk.InboundIPs = []string{"192.0.2.7", "203.0.113.1"}
		require.NoError(t, s.UpdateTrunk(ctx, trunk))
		same("192.0.2.7")
		same("203.0.113.1")
		_, err = s.InboundTrunkByAddress(ctx, netip.MustParseAddr("203.0.113.2"))
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

// TestInboundAddressRace has two stores create networks that overlap but do not equal, at once: the unique index cannot tell.
func TestInboundAddressRace(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		addresses := []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1", "10.0.0.0/9", "10.1.1.0/28", "10.1.1.0/30", "10.1.0.0/20"}
		results := make([]error, len(addresses))
		var group errgroup.Group
		for i, address := range addresses {
			group.Go(func() error {
				store := []*models.Store{s, other}[i%2]
				results[i] = store.CreateTrunk(t.Context(), &models.Trunk{CustomerID: customer.ID, Direction: models.Inbound, InboundIPs: []string{address}})
				return nil
			})
		}
		require.NoError(t, group.Wait())
		created := 0
		for _, err := range results {
			if err == nil {
				created++
				continue
			}
			require.ErrorIs(t, err, models.ErrInboundIPExists)
		}
		require.Equal(t, 1, created)
	})
}
