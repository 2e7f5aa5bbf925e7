package calls

import (
	"context"
	"errors"
	"slices"

	"tandem/esl"
	"tandem/models"
)

// dialState is what a dial needs to go on: its legs and whose they are, where the round that runs begins among them, how many ways to
// each party were tried, and what else was done.
type dialState struct {
	Legs  []dialLeg `json:"legs"`
	Round int       `json:"round"`
	First int       `json:"first,omitempty"`
	Tried []int     `json:"tried"`
	Told  bool      `json:"told,omitempty"`
	Tape  string    `json:"tape,omitempty"`
}

type dialLeg struct {
	ID    string `json:"id"`
	Party int    `json:"party"`
}

// remember notes where the dial stands; it is stored with the next change of the call.
func (d *dialing) remember(round int) {
	at := dialState{Round: round, First: d.first, Told: d.told, Tried: make([]int, len(d.parties))}
	for i, party := range d.parties {
		at.Tried[i] = party.tried
	}
	for _, l := range d.legs {
		at.Legs = append(at.Legs, dialLeg{ID: l.row.ID, Party: slices.Index(d.parties, l.party)})
	}
	if d.tape != nil {
		at.Tape = d.tape.row.ID
	}
	d.s.remember(at)
	d.begins = round
}

// recall takes over what an earlier controller had begun.
func (d *dialing) recall() error {
	var at dialState
	if d.s.resumed == nil || !d.s.recalls(&at) || len(at.Tried) != len(d.parties) {
		return nil
	}
	rows, err := d.s.storedLegs()
	if err != nil {
		return err
	}
	d.first, d.told = at.First, at.Told
	for i, tried := range at.Tried {
		d.parties[i].tried = min(tried, max(1, len(d.parties[i].ways)))
	}
	for i, known := range at.Legs {
		found := slices.IndexFunc(rows, func(row models.Leg) bool { return row.ID == known.ID })
		if found < 0 || known.Party < 0 || known.Party >= len(d.parties) {
			continue
		}
		l := d.restore(rows[found], d.parties[known.Party])
		d.legs, l.party.begun = append(d.legs, l), true
		if i >= at.Round {
			d.resumed = append(d.resumed, l)
		}
	}
	for _, tape := range d.s.tapes {
		if tape.row.ID == at.Tape {
			tape.background = false
			d.tape = tape
		}
	}
	return nil
}

// storedLegs are the rows of all parties that the call has dialled.
func (s *session) storedLegs() (rows []models.Leg, err error) {
	err = s.lookUp("read the legs", func(ctx context.Context) (err error) {
		rows, err = s.m.cfg.Store.LegsOfCall(ctx, s.call.CustomerID, s.call.ID)
		return err
	})
	return rows, err
}

// restore makes a leg of its row.
func (d *dialing) restore(row models.Leg, party *called) *leg {
	l := &leg{row: row, target: party.target, party: party, limit: d.limit, detect: d.a.MachineDetection}
	l.confirms, l.held = d.group.Confirm != nil, d.group.Hold > 0
	l.asks = l.confirms || l.held || d.group.Announce != nil
	if row.TrunkID != nil {
		at := slices.IndexFunc(party.ways, func(w way) bool { return w.trunk.ID == *row.TrunkID })
		if at >= 0 {
			l.over = &party.ways[at]
		} else {
			l.over = &way{trunk: models.Trunk{ID: *row.TrunkID}} // it is not to be used any more, but was
		}
	}
	l.restoreTimes()
	if row.Status == models.LegEnded {
		l.facts = &hangupFacts{cause: row.Cause, q850: row.Q850, sip: row.SIPCode}
	}
	return l
}

// restoreTimes takes over when the party answered and was joined.
func (l *leg) restoreTimes() {
	if l.row.AnsweredAt != nil {
		l.answered = *l.row.AnsweredAt
	}
	if l.row.JoinedAt != nil {
		l.bridged, l.joinedAt = *l.row.JoinedAt, *l.row.JoinedAt
	}
}

// catchUp does what an earlier controller could not any more when a party was joined.
func (d *dialing) catchUp() error {
	for _, l := range d.resumed {
		if l.facts == nil && l.joined() {
			if err := d.join(l); err != nil {
				return err
			}
		}
	}
	return d.s.catchUpLegs()
}

// catchUpLegs asks the switch what became of the parties while nobody listened. Of one that is gone it says nothing; see recallLegs.
func (s *session) catchUpLegs() error {
	for _, l := range s.legs {
		if l.facts != nil {
			continue
		}
		if err := s.catchUpLeg(l); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) catchUpLeg(l *leg) error {
	var channel *esl.Event
	err := s.order("read the leg's channel", func(ctx context.Context) (err error) {
		if channel, err = s.node.sw.Dump(ctx, l.row.ChannelID); errors.Is(err, esl.ErrNoSuchChannel) {
			channel, err = nil, nil
		}
		return err
	})
	if err != nil || channel == nil || l.facts != nil {
		return err
	}
	// Whoever noted that it was joined may have died before the switch knew of the limit.
	if err := s.limitLeg(l); err != nil {
		return err
	}
	if l.row.Status == models.LegDialing && channel.Get("Answer-State") == "ringing" {
		now := s.m.cfg.Now()
		err = s.moveLeg(l, "leg.ringing", func(row *models.Leg) { row.Status, row.RingingAt = models.LegRinging, &now })
	}
	if err == nil && channel.Get("Answer-State") == "answered" {
		if l.row.AnsweredAt == nil {
			err = s.answerLeg(l, microTime(channel.Get("Caller-Channel-Answered-Time")))
		} else if l.held && l.row.AnsweredBy == "" {
			err = s.screenLeg(l)
		}
	}
	bridged := microTime(channel.Get("Caller-Channel-Bridged-Time"))
	if err == nil && !bridged.IsZero() {
		err = s.bridgeLeg(l, bridged)
	}
	return err
}

// recallLegs ends the legs that ended while nobody listened, with what is left of them: their CDRs, and what the call's own channel says
// of its last bridge.
func (s *session) recallLegs(channel attributes) error {
	for _, l := range s.legs {
		if l.facts != nil {
			continue
		}
		alive, err := s.alive(l.row.ChannelID)
		if err != nil {
			return err
		}
		if alive {
			continue // its end is told when it comes
		}
		bridged := microTime(channel.Get("Caller-Channel-Bridged-Time"))
		if l.joinedAt.IsZero() && !bridged.IsZero() && channel.Variable("last_bridge_to") == l.row.ChannelID {
			if err := s.answerLeg(l, bridged); err != nil {
				return err
			}
			if err := s.bridgeLeg(l, bridged); err != nil {
				return err
			}
		}
		facts, ended, err := s.testimony(l.row.ChannelID)
		if err != nil {
			return err
		}
		if facts != nil {
			if err := s.endLeg(l, *facts, ended); err != nil {
				return err
			}
		}
	}
	return nil
}

// alive asks the switch for a channel.
func (s *session) alive(channel string) (alive bool, err error) {
	err = s.order("ask for a channel", func(ctx context.Context) (err error) {
		alive, err = s.node.sw.Exists(ctx, channel)
		return err
	})
	return alive, err
}
