package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"tandem/billing"
	"tandem/models"
)

// route is where an inbound leg belongs.
type route struct {
	customerID    string
	applicationID string
	didID         *string
	trunk         *models.Trunk // nil for an operator's provider
	to            string
}

func (r *route) trunkID() *string {
	if r.trunk == nil {
		return nil
	}
	return &r.trunk.ID
}

// errUninvited refuses a leg that the dialplan should not have let through.
var errUninvited = errors.New("the number and the source address do not belong together")

// admit finds out whose call an inbound leg is, and stores it. A leg that is nobody's is refused and gets no call.
func (s *session) admit() error {
	s.parked = true
	defer s.setUp()
	ctx, cancel := context.WithTimeout(s.m.ctx, s.m.cfg.CommandTimeout)
	defer cancel()
	source := s.park.Variable("sip_network_ip")
	if source == "" {
		source = s.park.Get("Caller-Network-Addr")
	}
	dialed := s.park.Get("Caller-Destination-Number")
	r, err := s.m.route(ctx, dialed, source)
	if err != nil {
		cause := causeUnallocated
		if !errors.Is(err, errUninvited) {
			cause = causeTempFailure
		}
		s.log.Warn("inbound leg refused", "source", source, "to", models.MaskedNumber(party(dialed)), "error", err)
		s.refuse(cause)
		return errEnded
	}
	app, err := s.m.cfg.Store.ApplicationByID(ctx, r.applicationID)
	if err != nil {
		s.log.Error("inbound leg refused: its application cannot be read", "application_id", r.applicationID, "error", err)
		s.refuse(causeTempFailure)
		return errEnded
	}
	s.app = app
	call := &models.Call{
		ID: models.NewID("call_"), CustomerID: r.customerID, ApplicationID: app.ID, TrunkID: r.trunkID(), DIDID: r.didID, NodeID: &s.node.row.ID,
		Fence: s.node.row.LeaseToken, Direction: DirectionInbound, From: party(s.park.Get("Caller-Caller-ID-Number")), To: r.to, ChannelID: s.channel,
	}
	// Before it is stored: from then on it may be commanded.
	s.m.nameCall(s, call.ID)
	defer func() {
		if s.call == nil {
			s.m.unnameCall(call.ID)
		}
	}()
	stored, err := s.m.insertArrived(ctx, call, app, r.trunk)
	for _, refusal := range refusalsStored {
		if errors.Is(err, refusal.err) {
			s.log.Warn("inbound leg refused", "customer_id", r.customerID, "reason", refusal.reason, "error", err)
			sip := http.StatusServiceUnavailable
			if errors.Is(err, models.ErrInsufficientBalance) {
				sip = s.m.cfg.NoBalanceStatus
			}
			s.refuseWith(sip)
			s.m.tellExhausted(ctx, r.customerID, err)
			return s.insertRefused(ctx, call, refusal.reason, sip)
		}
	}
	if errors.Is(err, models.ErrStale) {
		return errAbandoned // the node is another controller's, which finds the channel parked
	}
	if errors.Is(err, models.ErrChannelExists) {
		s.log.Warn("inbound leg is a call already")
		return errAbandoned
	}
	if err != nil {
		if storeAway(err) {
			s.m.shed(err)
		} else {
			s.log.Error("inbound leg refused: its call cannot be stored", "error", err)
		}
		s.refuse(causeTempFailure)
		return errEnded
	}
	s.setCall(stored)
	s.flow.sipHeaders = sipHeaders(s.park)
	return nil
}

// refusalsStored are why an inbound call is refused that its customer is told of.
var refusalsStored = []struct {
	err    error
	reason string
}{
	{models.ErrInsufficientBalance, ReasonInsufficientBalance},
	{models.ErrSpendLimit, ReasonSpendLimit},
	{models.ErrTrunkFull, ReasonTrunkLimit},
	{models.ErrApplicationFull, ReasonApplicationLimit},
	{models.ErrCustomerFull, ReasonCustomerLimit},
	{billing.ErrSuspended, ReasonSuspended},
	{billing.ErrUnlisted, ReasonDestination},
}

// insertRefused stores an inbound call that is over before it began, with both of its events.
func (s *session) insertRefused(ctx context.Context, call *models.Call, reason string, sip int) error {
	err := s.m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		refused := *call
		arrow, _ := next("", onArrive)
		now := s.m.cfg.Now()
		refused.Status, refused.RingingAt = arrow.to[0], &now
		if err := tx.CreateCall(ctx, &refused); err != nil {
			return fmt.Errorf("insert call: %w", err)
		}
		if err := emit(ctx, tx, &refused, arrow.event, nil); err != nil {
			return err
		}
		return s.m.end(ctx, tx, &refused, ending{
			status: StatusFailed, reason: reason, source: SourcePlatform, cause: causeTempFailure,
			q850: q850[causeTempFailure], sip: sip,
		}, now)
	})
	if err != nil {
		s.log.Error("refused call not stored", "error", err)
	}
	return errEnded
}

// route identifies the DID by the number and the trunk by the source address, and checks that they belong together: the
// dialplan did, but it may be older than the last change.
func (m *Manager) route(ctx context.Context, dialed, source string) (*route, error) {
	addr, err := netip.ParseAddr(source)
	if err != nil {
		return nil, fmt.Errorf("source address %q: %w", source, errUninvited)
	}
	addr = addr.Unmap()
	trunk, err := m.cfg.Store.InboundTrunkByAddress(ctx, addr)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return nil, fmt.Errorf("find trunk: %w", err)
	}
	var did *models.DID
	if number, ok := switchNumber(dialed); ok {
		did, err = m.cfg.Store.RouteDID(ctx, number)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return nil, fmt.Errorf("find DID: %w", err)
		}
	}
	switch {
	case did != nil && did.Status != didActive, did != nil && did.RouteMode != routeWebhook:
		return nil, fmt.Errorf("the DID is not for an application: %w", errUninvited)
	case did != nil && did.ApplicationID == nil:
		return nil, fmt.Errorf("the DID has no application: %w", errUninvited)
	case did != nil && trunk != nil && trunk.IsActive && trunk.CustomerID == did.CustomerID:
		return &route{did.CustomerID, *did.ApplicationID, &did.ID, trunk, did.NumberE164}, nil
	case did != nil && m.provider(addr):
		return &route{did.CustomerID, *did.ApplicationID, &did.ID, nil, did.NumberE164}, nil
	case did != nil:
		return nil, errUninvited
	case trunk != nil && trunk.IsActive && trunk.ApplicationID != nil:
		return &route{trunk.CustomerID, *trunk.ApplicationID, nil, trunk, party(dialed)}, nil
	default:
		return nil, errUninvited
	}
}

// The values of a DID that send its calls here.
const (
	didActive    = "active"
	routeWebhook = "webhook"
)

// provider says whether an address is one of the operator's carriers.
func (m *Manager) provider(addr netip.Addr) bool {
	for _, prefix := range m.cfg.Providers {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// headers is the part of an *esl.Event that its headers are listed through.
type headers interface {
	Headers(yield func(header, value string) bool)
}

// maxSIPHeaders bounds what of the caller's INVITE is passed on.
const maxSIPHeaders = 20

// sipHeaders are the X- headers of the caller's INVITE, which FreeSWITCH keeps as sip_h_ variables.
func sipHeaders(ev headers) map[string]string {
	found := map[string]string{}
	for header, value := range ev.Headers {
		name, ok := strings.CutPrefix(header, "variable_sip_h_")
		if !ok || len(name) < 2 || !strings.EqualFold(name[:2], "X-") || len(value) > 1024 {
			continue
		}
		found[name] = value
		if len(found) == maxSIPHeaders {
			break
		}
	}
	return found
}
