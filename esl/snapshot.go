package esl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Snapshot is what a switch held when a connection came up. FreeSWITCH answers from a table that lags behind by moments: a channel that is
// missing may still exist ([Node.Exists]), one that is listed may be gone.
type Snapshot struct {
	CoreUUID  string
	Restarted bool // the switch is another process than at the last connection: every call that was on it is dead
	Channels  []Channel
}

// Channel is one row of `show channels`.
type Channel struct {
	UUID               string
	Name               string
	Direction          string // "inbound" or "outbound", as the switch sees it
	State              string // CS_EXECUTE, …
	CallState          string // RINGING, ACTIVE, …
	CallerNumber       string
	CallerName         string
	Address            string // the peer's IP address
	Destination        string
	InitialDestination string
	Context            string
	Application        string
	ApplicationData    string
	CallUUID           string
	Created            time.Time
}

// snapshot learns the switch's identity and channels.
func (s *session) snapshot() (Snapshot, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.node.cfg.CommandTimeout)
	defer cancel()
	core, err := s.coreUUID(ctx)
	if err != nil {
		return Snapshot{}, fmt.Errorf("ask for core_uuid: %w", err)
	}
	if core == "" {
		return Snapshot{}, errors.New("switch has no core_uuid")
	}
	channels, err := s.channels(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	before := s.node.Core()
	return Snapshot{CoreUUID: core, Restarted: before != "" && before != core, Channels: channels}, nil
}

func (s *session) channels(ctx context.Context) ([]Channel, error) {
	m := apiMessage("show", "channels as json")
	m.asks = true
	f, err := s.commands.do(ctx, m)
	if err != nil {
		return nil, err
	}
	return parseChannels(f.body)
}

func parseChannels(doc string) ([]Channel, error) {
	var table struct {
		Rows []struct {
			UUID         string `json:"uuid"`
			Name         string `json:"name"`
			Direction    string `json:"direction"`
			CreatedEpoch string `json:"created_epoch"`
			State        string `json:"state"`
			CallState    string `json:"callstate"`
			CallerName   string `json:"cid_name"`
			CallerNumber string `json:"cid_num"`
			Address      string `json:"ip_addr"`
			Destination  string `json:"dest"`
			InitialDest  string `json:"initial_dest"`
			Context      string `json:"context"`
			Application  string `json:"application"`
			AppData      string `json:"application_data"`
			CallUUID     string `json:"call_uuid"`
		} `json:"rows"`
	}
	if err := json.Unmarshal([]byte(doc), &table); err != nil {
		return nil, fmt.Errorf("parse the list of channels (%d bytes): %w", len(doc), err)
	}
	channels := make([]Channel, 0, len(table.Rows))
	for _, r := range table.Rows {
		c := Channel{
			UUID: r.UUID, Name: r.Name, Direction: r.Direction, State: r.State, CallState: r.CallState,
			CallerNumber: r.CallerNumber, CallerName: r.CallerName, Address: r.Address, Destination: r.Destination,
			InitialDestination: r.InitialDest, Context: r.Context, Application: r.Application, ApplicationData: r.AppData, CallUUID: r.CallUUID,
		}
		if epoch, err := strconv.ParseInt(r.CreatedEpoch, 10, 64); err == nil {
			c.Created = time.Unix(epoch, 0).UTC()
		}
		channels = append(channels, c)
	}
	return channels, nil
}
