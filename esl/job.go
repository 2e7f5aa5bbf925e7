package esl

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Job is a command that runs in the background of the switch. It ends by its BACKGROUND_JOB event, by the hangup of the channel that it
// creates, by its time limit, or with the connection.
type Job struct {
	ID      string // the Job-UUID
	command string
	channel string
	done    chan struct{}
	reply   string
	err     error
}

// Wait returns what the switch replied once the job has ended: a *CommandError when it failed, ErrNoReply when its end is not known.
func (j *Job) Wait(ctx context.Context) (string, error) {
	select {
	case <-j.done:
		return j.reply, j.err
	case <-ctx.Done():
		return "", fmt.Errorf("esl: wait for %s: %w", j.command, context.Cause(ctx))
	}
}

// Done is closed when the job has ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// jobs are the background commands that have not ended.
type jobs struct {
	mu        sync.Mutex
	byID      map[string]*runningJob
	byChannel map[string]*runningJob
}

type runningJob struct {
	*Job
	timer *time.Timer
}

func newJobs() *jobs {
	return &jobs{byID: make(map[string]*runningJob), byChannel: make(map[string]*runningJob)}
}

// add registers a job before its command is written: the event may be faster than the reply. It ends with ErrNoReply after limit.
func (js *jobs) add(id, command, channel string, limit time.Duration) (*Job, error) {
	r := &runningJob{Job: &Job{ID: id, command: command, channel: channel, done: make(chan struct{})}}
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.byID[id] != nil {
		return nil, refuse("job_uuid", "names a job that has not ended")
	}
	if channel != "" && js.byChannel[channel] != nil {
		return nil, refuse("channel_id", "names a channel that is being originated")
	}
	js.byID[id] = r
	if channel != "" {
		js.byChannel[channel] = r
	}
	r.timer = time.AfterFunc(limit, func() {
		js.finish(id, "", fmt.Errorf("esl: %s: %w within %s", command, ErrNoReply, limit))
	})
	return r.Job, nil
}

// finish ends a job; the first end counts.
func (js *jobs) finish(id, reply string, err error) {
	js.mu.Lock()
	r := js.byID[id]
	if r != nil {
		delete(js.byID, id)
		if r.channel != "" {
			delete(js.byChannel, r.channel)
		}
	}
	js.mu.Unlock()
	if r == nil {
		return
	}
	r.timer.Stop()
	r.reply, r.err = reply, err
	close(r.done)
}

// finishAll ends every job, because the events that would end them are lost.
func (js *jobs) finishAll(cause error) {
	js.mu.Lock()
	ids := make(map[string]string, len(js.byID))
	for id, r := range js.byID {
		ids[id] = r.command
	}
	js.mu.Unlock()
	for id, command := range ids {
		js.finish(id, "", fmt.Errorf("esl: %s: %w: %w: %w", command, ErrDown, ErrNoReply, cause))
	}
}

// observe ends jobs as events tell of them.
func (js *jobs) observe(e *Event) {
	switch e.name {
	case "BACKGROUND_JOB":
		id := e.Get("Job-UUID")
		js.mu.Lock()
		r := js.byID[id]
		js.mu.Unlock()
		if r == nil {
			return
		}
		reply := strings.TrimSpace(e.Body())
		if strings.HasPrefix(reply, "-ERR") || strings.HasPrefix(reply, "-USAGE") {
			js.finish(id, "", &CommandError{Command: r.command, Reply: reply})
			return
		}
		js.finish(id, reply, nil)
	case "CHANNEL_HANGUP", "CHANNEL_HANGUP_COMPLETE", "CHANNEL_DESTROY":
		js.mu.Lock()
		r := js.byChannel[e.channel]
		js.mu.Unlock()
		if r != nil {
			js.finish(r.ID, "", &CommandError{Command: r.command, Reply: "-ERR " + e.Get("Hangup-Cause")})
		}
	}
}
