package esl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A command that waits for its turn for longer than its caller does was not sent, and says so.
func TestCommandBehindASlowOneWasNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var heard []string
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			if m.line != "api slow" && m.line != "api behind it" {
				return false
			}
			heard = append(heard, m.line)
			pass(1500 * time.Millisecond)
			c.api("reply to " + m.line)
			return true
		}
		n := startNode(t, f, h, func(cfg *Config) { cfg.Window = 1 })
		<-h.up
		var slow sync.WaitGroup
		slow.Go(func() {
			_, err := n.API(t.Context(), "slow")
			require.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := n.API(ctx, "behind it")
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrNoReply)
		slow.Wait()
		require.Equal(t, []string{"api slow"}, heard)
		_, err = n.API(t.Context(), "behind it")
		require.NoError(t, err, "its place is free again")
	})
}

func TestTimedOutCommandDoesNotShiftLaterReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			if m.line == "api slow" {
				pass(1500 * time.Millisecond)
			}
			if strings.HasPrefix(m.line, "api global_getvar core") || strings.HasPrefix(m.line, "api show") || !strings.HasPrefix(m.line, "api ") {
				return false
			}
			c.api("reply to " + m.line)
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := n.API(ctx, "slow")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoReply)
		require.Equal(t, 100*time.Millisecond, time.Since(began), "the caller's own deadline counts")

		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = n.API(short, "behind it")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 200*time.Millisecond, time.Since(began), "also behind a slow one")

		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				reply, err := n.API(t.Context(), fmt.Sprint("number ", i))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint("reply to api number ", i), reply)
			})
		}
		all.Wait()
		require.Empty(t, h.down, "late by less than the limit is no reason to disconnect")
	})
}

func TestCommandAbandonedForTooLongClosesTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			if m.line != "api never" {
				return false
			}
			_, _ = io.Copy(io.Discard, c.reader) // busy for ever, like a switch: what comes behind waits too
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := n.API(ctx, "never")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		later := make(chan error, 1)
		go func() {
			long, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := n.API(long, "later")
			later <- err
		}()
		require.ErrorIs(t, <-h.down, ErrNoReply)
		require.InDelta(t, 11, time.Since(began).Seconds(), 1.1)
		require.ErrorIs(t, <-later, ErrDown)
		<-h.up
	})
}

func TestPatientCallerKeepsTheConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			if m.line == "api slow" {
				pass(25 * time.Second)
			}
			return false
		}
		n := startNode(t, f, h, nil)
		<-h.up
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		reply, err := n.API(ctx, "slow")
		require.NoError(t, err)
		require.Equal(t, "+OK slow", reply)
		require.Empty(t, h.down)
	})
}

func TestAtMost64CommandsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var waiting atomic.Int64
		hold := make(chan *fakeConn, 1000)
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			if !strings.HasPrefix(m.line, "api held") {
				return false
			}
			waiting.Add(1)
			hold <- c
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				_, err := n.API(t.Context(), "held")
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		require.EqualValues(t, 64, waiting.Load())
		for range 10 {
			(<-hold).api("+OK")
		}
		synctest.Wait()
		require.EqualValues(t, 74, waiting.Load())
		for range 190 {
			(<-hold).api("+OK")
		}
		all.Wait()
	})
}

func TestRefusalsAreTyped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			switch {
			case strings.HasPrefix(m.line, "api uuid_kill"):
				c.api("-ERR No such channel!\n")
			case strings.HasPrefix(m.line, "sendmsg"):
				c.reply("-ERR invalid session id [gone]")
			case strings.HasPrefix(m.line, "api global_getvar unset"):
				c.api("-ERR no reply\n")
			case strings.HasPrefix(m.line, "api global_getvar percent"):
				c.api("100%25 raw")
			default:
				return false
			}
			return true
		}
		n := startNode(t, f, h, nil)
		<-h.up
		require.ErrorIs(t, n.Kill(t.Context(), "gone", "NORMAL_CLEARING"), ErrNoSuchChannel)
		err := n.Execute(t.Context(), "gone", NewEventUUID(), Answer())
		require.ErrorIs(t, err, ErrNoSuchChannel)
		refused := new(CommandError)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "execute answer", refused.Command)
		value, err := n.GlobalVariable(t.Context(), "unset")
		require.NoError(t, err)
		require.Empty(t, value)
		value, err = n.GlobalVariable(t.Context(), "percent")
		require.NoError(t, err)
		require.Equal(t, "100%25 raw", value)
	})
}

func TestApplicationsInFlightOnAChannel(t *testing.T) {
	t.Parallel()
	for name, give := range map[string]struct {
		back func(ctx context.Context, n *Node, c *fakeConn, first string)
		more int // how many of the waiting ones find room
	}{
		"completion": {more: 1, back: func(_ context.Context, _ *Node, c *fakeConn, first string) {
			c.event("CHANNEL_EXECUTE_COMPLETE", "Unique-ID", "chan", "Application-UUID", first)
		}},
		"hangup": {more: 2, back: func(_ context.Context, _ *Node, c *fakeConn, _ string) {
			c.event("CHANNEL_HANGUP_COMPLETE", "Unique-ID", "chan")
		}},
		"break": {more: 2, back: func(ctx context.Context, n *Node, _ *fakeConn, _ string) { _ = n.Break(ctx, "chan") }},
		"another channel's completion": {more: 0, back: func(_ context.Context, _ *Node, c *fakeConn, _ string) {
			c.event("CHANNEL_EXECUTE_COMPLETE", "Unique-ID", "other", "Application-UUID", NewEventUUID())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, h := newFakeSwitch(), newRecorder()
				var sent atomic.Int64
				f.intercept = func(_ *fakeConn, m clientMessage) bool {
					if m.line == "sendmsg chan" {
						sent.Add(1)
					}
					return false
				}
				n := startNode(t, f, h, nil)
				<-h.up
				c := <-f.eventCh
				ids := make([]string, 10)
				ctx, cancel := context.WithCancel(t.Context())
				var waiting sync.WaitGroup
				for i := range ids {
					ids[i] = NewEventUUID()
					if i < 8 {
						require.NoError(t, n.Execute(ctx, "chan", ids[i], Answer()))
						continue
					}
					waiting.Go(func() { _ = n.Execute(ctx, "chan", ids[i], Answer()) })
				}
				synctest.Wait()
				require.EqualValues(t, 8, sent.Load(), "the ninth waits")
				require.NoError(t, n.Execute(ctx, "another", NewEventUUID(), Answer()), "other channels do not wait")
				give.back(ctx, n, c, ids[0])
				synctest.Wait()
				require.EqualValues(t, 8+give.more, sent.Load())
				cancel()
				waiting.Wait()
			})
		})
	}
}

func TestExecuteIsOneSafeMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		got := make(chan clientMessage, 1000)
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			got <- m
			return false
		}
		n := startNode(t, f, h, nil)
		<-h.up
		synctest.Wait()
		for len(got) > 0 {
			<-got
		}
		app, err := Speak("flite", "slt", "One.\n\napi global_setvar pwned=1\n\nTwo")
		require.NoError(t, err)
		id := NewEventUUID()
		require.NoError(t, n.Execute(t.Context(), "chan", id, app))
		require.Equal(t, clientMessage{
			line: "sendmsg chan",
			headers: map[string]string{
				"call-command": "execute", "execute-app-name": "speak", "event-lock": "true", "event-uuid": id, "loops": "1",
				"content-type": "text/plain", "content-length": fmt.Sprint(len(app.Args())),
			},
			body: "flite|slt|One.  api global_setvar pwned=1  Two",
		}, <-got)
		require.Empty(t, got)
		require.Error(t, n.Execute(t.Context(), "chan\n\napi shutdown", id, app))
		require.Error(t, n.Execute(t.Context(), "chan", "not ours", app))
		require.Error(t, n.Execute(t.Context(), "chan", NewEventUUID(), App{}))
		require.Empty(t, got)
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	place := func(t *testing.T, n *Node) *Job {
		job, err := n.Originate(t.Context(), Originate{ChannelID: "chan", JobUUID: "job", Gateway: "gw", Number: "+15550100", Timeout: 30 * time.Second})
		require.NoError(t, err)
		return job
	}
	for name, tc := range map[string]struct {
		end   func(c *fakeConn)
		reply string
		cause string
		err   error
	}{
		"answered": {reply: "+OK chan", end: func(c *fakeConn) { c.event("BACKGROUND_JOB", "Job-UUID", "job", "_body", "+OK chan\n") }},
		"refused": {cause: "USER_BUSY", end: func(c *fakeConn) {
			c.event("BACKGROUND_JOB", "Job-UUID", "another", "_body", "+OK\n")
			c.event("BACKGROUND_JOB", "Job-UUID", "job", "_body", "-ERR USER_BUSY\n")
		}},
		"hung up": {cause: "NO_ANSWER", end: func(c *fakeConn) {
			c.event("CHANNEL_HANGUP_COMPLETE", "Unique-ID", "chan", "Hangup-Cause", "NO_ANSWER")
			c.event("BACKGROUND_JOB", "Job-UUID", "job", "_body", "-ERR NO_ANSWER\n")
		}},
		"nothing comes": {err: ErrNoReply, end: func(c *fakeConn) {
			for range 3 {
				pass(20 * time.Second)
				c.event("HEARTBEAT")
			}
		}},
		"connection lost": {err: ErrDown, end: func(c *fakeConn) { _ = c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, h := newFakeSwitch(), newRecorder()
				n := startNode(t, f, h, nil)
				<-h.up
				job := place(t, n)
				_, err := n.Originate(t.Context(), Originate{ChannelID: "chan", Gateway: "gw", Number: "1"})
				require.ErrorIs(t, err, ErrRefusedInput, "a channel is originated once")
				tc.end(<-f.eventCh)
				reply, err := job.Wait(t.Context())
				require.Equal(t, tc.reply, reply)
				switch {
				case tc.cause != "":
					refused := new(CommandError)
					require.ErrorAs(t, err, &refused)
					require.Equal(t, tc.cause, refused.Cause())
				case tc.err != nil:
					require.ErrorIs(t, err, tc.err)
				default:
					require.NoError(t, err)
				}
			})
		})
	}
}

func TestSlowCommandsRunInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			if job := m.headers["job-uuid"]; job != "" {
				reply := "+OK [Success]"
				if strings.Contains(m.line, "rescan") {
					reply = "-ERR no such profile"
				}
				ev := <-f.eventCh
				f.eventCh <- ev
				go func() {
					pass(15 * time.Second)
					ev.event("BACKGROUND_JOB", "Job-UUID", job, "_body", reply+"\n")
				}()
			}
			return false
		}
		n := startNode(t, f, h, nil)
		<-h.up
		done := make(chan error, 1)
		go func() { done <- n.ReloadXML(t.Context()) }()
		synctest.Wait()
		began := time.Now()
		_, err := n.Version(t.Context())
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "nobody waits behind a reload")
		require.NoError(t, <-done)
		refused := new(CommandError)
		require.ErrorAs(t, n.RescanProfile(t.Context(), "external"), &refused)
		require.Equal(t, "-ERR no such profile", refused.Reply)
	})
}

// What is to be done right before a command goes out is done when its turn has come, and keeps it from going out.
func TestOriginateBegins(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	f := newFakeSwitch()
	f.intercept = func(_ *fakeConn, m clientMessage) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(m.line, "bgapi originate") {
			sent = append(sent, m.line)
		}
		return false
	}
	handler := newRecorder()
	n := startNode(t, f, handler, func(cfg *Config) { cfg.Window, cfg.Probe = 1, time.Hour })
	receive(t, handler.up)
	ctx := deadline(t, time.Minute)
	refused := errors.New("not now")
	o := Originate{ChannelID: fencedChannel, Gateway: "gateway", Number: "+15550100001", Timeout: time.Minute, Begin: func(context.Context) error { return refused }}
	for range 3 {
		_, err := n.Originate(ctx, o)
		require.ErrorIs(t, err, refused)
		require.NotErrorIs(t, err, ErrNoReply)
	}
	began := 0
	o.Begin = func(context.Context) error { began++; return nil }
	_, err := n.Originate(ctx, o)
	require.NoError(t, err, "the places of the others are free again")
	require.Equal(t, 1, began)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, sent, 1)
}

// brokenConn is a socket that takes so many bytes of each message and fails.
type brokenConn struct {
	net.Conn
	takes int
}

func (c *brokenConn) Write([]byte) (int, error) { return c.takes, net.ErrClosed }

// Whoever sends a command that must not be sent twice has to know what is certain.
func TestWhatNeverReachedTheSocketWasNotSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		takes   int
		perhaps []bool // whether the first command and the one behind it may have been sent
	}{
		"nothing of it":  {0, []bool{false, false}},
		"a part of it":   {3, []bool{true, false}},
		"nobody is left": {-1, []bool{false, false}}, // the connection is closed before anybody writes
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCommandConn(&connection{Conn: &brokenConn{takes: tt.takes}}, 2, free{}, func(string, time.Duration, error) {})
				errs := make([]chan error, 2)
				for i := range errs {
					errs[i] = make(chan error, 1)
					go func() {
						_, err := c.do(t.Context(), message{label: "originate", text: "bgapi originate\n\n", unfenced: true})
						errs[i] <- err
					}()
					synctest.Wait()
				}
				cause := errors.New("the end")
				if tt.takes >= 0 {
					cause = c.write(t.Context())
				}
				c.close(cause)
				for i, perhaps := range tt.perhaps {
					err := <-errs[i]
					require.ErrorIs(t, err, ErrDown)
					require.ErrorIs(t, err, cause)
					require.Equal(t, perhaps, errors.Is(err, ErrNoReply), "command %d: %v", i+1, err)
				}
			})
		})
	}
}
