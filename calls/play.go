package calls

import (
	"context"
	"errors"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// doPlay fetches the files and plays them, as often as asked or until max_seconds.
func (s *session) doPlay(a *actions.Play) (outcome, error) {
	files, failure, err := s.fetchFiles(a.URLs)
	if err != nil {
		return outcome{}, err
	}
	if failure != nil {
		return outcome{result: map[string]any{"outcome": "failed", "played_ms": 0}}, s.skip(a, "url", failure.Error())
	}
	app, build := esl.Playback(files...)
	begun := s.m.cfg.Now()
	stop := s.breakAfter(a.MaxSeconds)
	defer stop()
	result := map[string]any{"outcome": "played"}
	for round := 1; a.Loop == 0 || round <= a.Loop; round++ {
		started := s.m.cfg.Now()
		done, err := s.media(app, build, noTerminators, a.Early)
		if err != nil {
			return outcome{}, err
		}
		if a.MaxSeconds > 0 && s.m.cfg.Now().Sub(begun) >= a.MaxSeconds {
			result["outcome"] = "max_seconds"
			break
		}
		if response := done.Get("Application-Response"); response == "FILE NOT FOUND" || response == "PLAYBACK ERROR" {
			result["outcome"] = "failed"
			if err := s.skip(a, "url", "the switch could not play the file"); err != nil {
				return outcome{}, err
			}
			break
		}
		if a.Loop == 0 && s.m.cfg.Now().Sub(started) < briefest {
			break
		}
	}
	result["played_ms"] = s.m.cfg.Now().Sub(begun).Milliseconds()
	return outcome{result: result}, nil
}

// breakAfter interrupts what the channel plays after a time; 0 is never. The function that it returns stops the clock and
// waits for an interruption that is under way.
func (s *session) breakAfter(limit time.Duration) (stop func()) {
	if limit <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(done)
		ctx, cancel := s.command()
		defer cancel()
		if err := s.node.sw.Break(ctx, s.channel); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
			s.log.Warn("playback not interrupted", "error", err)
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// fetchFiles brings the files of URLs to the node. failure is what is wrong with the first that could not be had; err ends
// the call's flow.
func (s *session) fetchFiles(urls []string) (files []string, failure, err error) {
	dir := s.m.cfg.MediaDir(s.node.row)
	err = s.beside(func(ctx context.Context) {
		for _, url := range urls {
			var file string
			if file, failure = s.m.media.fetch(ctx, dir, url); failure != nil {
				return
			}
			files = append(files, file)
		}
	})
	s.flow.files = append(s.flow.files, files...)
	return files, failure, err
}
