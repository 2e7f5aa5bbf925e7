package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// How the progress of long work is shown.
const (
	// progressAuto is a bar on a terminal, and progressPlain elsewhere.
	progressAuto = "auto"
	// progressPlain is a line now and then, progressJSON an object now and then.
	progressPlain = "plain"
	progressJSON  = "json"
	progressNone  = "none"
)

var progresses = []string{progressAuto, progressPlain, progressJSON, progressNone}

// progressEvery is how often a line is written.
const progressEvery = 5 * time.Second

// progress tells on standard error how far long work is. It belongs to one goroutine.
type progress struct {
	out   io.Writer
	what  string
	total int64
	form  string
	bar   *progressbar.ProgressBar
	begun time.Time
	told  time.Time
	done  int64
	now   func() time.Time
}

// newProgress begins to show how far something is: what names it, such as importing; a total of 0 is not known.
func (o *options) newProgress(cmd *cobra.Command, what string, total int64) *progress {
	p := &progress{out: cmd.ErrOrStderr(), what: what, total: total, form: o.progress, now: time.Now}
	if total == 1 {
		p.form = progressNone // that is not long
	}
	if p.form == progressAuto {
		p.form = progressPlain
		if interactive(p.out) {
			p.form = progressAuto
			most := total
			if most == 0 {
				most = -1
			}
			p.bar = progressbar.NewOptions64(most, progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(what),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
	}
	p.begun = p.now()
	p.told = p.begun
	return p
}

// at says that so much is done.
func (p *progress) at(done int64) {
	p.done = done
	if p.bar != nil {
		_ = p.bar.Set64(done) // a terminal that is gone stops no work
		return
	}
	if now := p.now(); now.Sub(p.told) >= progressEvery {
		p.told = now
		p.tell(false)
	}
}

// finish ends the showing, whether all is done or not.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
		return
	}
	p.tell(true)
}

// progressLine is what is told as JSON.
type progressLine struct {
	What    string  `json:"progress"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total,omitempty"`
	Rate    float64 `json:"per_second"`
	Seconds float64 `json:"seconds"`
	Ended   bool    `json:"ended"`
}

func (p *progress) tell(ended bool) {
	line := progressLine{What: p.what, Done: p.done, Total: p.total, Seconds: p.now().Sub(p.begun).Seconds(), Ended: ended}
	if line.Seconds > 0 {
		line.Rate = float64(p.done) / line.Seconds
	}
	switch p.form {
	case progressJSON:
		_ = json.NewEncoder(p.out).Encode(line)
	case progressPlain:
		whole := ""
		if p.total > 0 {
			whole = fmt.Sprintf("/%d, %d %%", p.total, 100*p.done/p.total)
		}
		_, _ = fmt.Fprintf(p.out, "%s: %d%s, %.0f/s\n", p.what, p.done, whole, line.Rate)
	}
}
