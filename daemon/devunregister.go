package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"tandem/models"
)

// The shortest and the longest loss of a registration that POST /dev/unregister takes, in seconds.
const (
	minLossSeconds = 1
	maxLossSeconds = 3600
)

// errUnfit marks a trunk whose registration cannot be lost.
var errUnfit = errors.New("this trunk cannot lose a registration")

// loseRegistration is POST /dev/unregister: a trunk's gateway at the simulated switch loses its registration for some seconds.
func (e *example) loseRegistration(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		Trunk   string  `json:"trunk"`
		Seconds float64 `json:"seconds"`
	}
	fail := func(status int, err error) {
		writeExampleJSON(w, status, map[string]string{"error": err.Error()})
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, exampleBodyLimit))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		fail(http.StatusBadRequest, fmt.Errorf("the body must be JSON with trunk and seconds: %w", err))
		return
	}
	if wanted.Seconds < minLossSeconds || wanted.Seconds > maxLossSeconds {
		fail(http.StatusBadRequest, fmt.Errorf("seconds must be from %d to %d, was %g", minLossSeconds, maxLossSeconds, wanted.Seconds))
		return
	}
	trunk, err := e.trunk(r.Context(), wanted.Trunk)
	switch {
	case errors.Is(err, models.ErrNotFound):
		fail(http.StatusNotFound, fmt.Errorf("trunk: there is none with the id or the gateway name %q", wanted.Trunk))
		return
	case errors.Is(err, errUnfit):
		fail(http.StatusConflict, err)
		return
	case err != nil:
		fail(http.StatusInternalServerError, err)
		return
	}
	if err := e.unregister(r.Context(), trunk.GatewayName, wanted.Seconds); err != nil {
		fail(http.StatusBadGateway, err)
		return
	}
	e.print("the simulated carrier ends the registration of trunk %s (%s) for %g s", trunk.ID, trunk.GatewayName, wanted.Seconds)
	writeExampleJSON(w, http.StatusAccepted, map[string]string{"trunk_id": trunk.ID, "gateway_name": trunk.GatewayName})
}

// trunk finds a trunk that registers by its id or the name of its gateway.
func (e *example) trunk(ctx context.Context, name string) (*models.Trunk, error) {
	trunk, err := e.store.TrunkByID(ctx, name)
	if err == nil && trunk.DeletedAt != nil {
		err = models.ErrNotFound
	}
	if errors.Is(err, models.ErrNotFound) && name != "" {
		found, _, findErr := e.store.FindTrunks(ctx, models.AnyCustomer, models.TrunkFilter{GatewayName: name}, models.Page{Limit: 2})
		switch {
		case findErr != nil:
			return nil, findErr
		case len(found) > 1:
			return nil, fmt.Errorf("%w: several have the gateway name %q, give an id", errUnfit, name)
		case len(found) == 1:
			trunk, err = &found[0], nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case !trunk.IsActive:
		return nil, fmt.Errorf("%w: %s is not active", errUnfit, trunk.ID)
	case trunk.Direction != models.Outbound || !trunk.Register:
		return nil, fmt.Errorf("%w: %s does not register; give it a username, a password and register", errUnfit, trunk.ID)
	}
	return trunk, nil
}

// arrived is GET /dev/call-in/CHANNEL: the call that a channel of the simulated switch has become.
func (e *example) arrived(w http.ResponseWriter, r *http.Request) {
	call, err := e.store.CallByChannel(r.Context(), r.PathValue("channel"))
	switch {
	case errors.Is(err, models.ErrNotFound):
		writeExampleJSON(w, http.StatusNotFound, map[string]string{"error": "no call has that channel"})
	case err != nil:
		writeExampleJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
	default:
		writeExampleJSON(w, http.StatusOK, map[string]string{"channel": call.ChannelID, "call_id": call.ID, "status": call.Status})
	}
}
