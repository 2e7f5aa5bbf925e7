package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// doPlay fetches the files and plays them, as often as asked or until max_seconds.
func (s *session) doPlay(a *actions.Play) (outcome, error) {
	app, failure, build, err := s.prepareSound(a)
	if err != nil {
		return outcome{}, err
	}
	if failure != nil {
		return outcome{result: map[string]any{"outcome": "failed", "played_ms": 0}}, s.fail(a, soundCode(failure), "url", failure.Error())
	}
	over, begun := s.rounds()
	left := a.MaxSeconds
	if left > 0 {
		left = max(left-s.m.cfg.Now().Sub(begun), time.Millisecond)
	}
	stop := s.breakAfter(left)
	defer stop()
	result := map[string]any{"outcome": "played"}
	for round := 1 + over; a.Loop == 0 || round <= a.Loop; round++ {
		started, fresh := s.m.cfg.Now(), s.resumed == nil
		done, err := s.media(app, build, noTerminators, a.Early)
		if err != nil {
			return outcome{}, err
		}
		if s.interrupted() {
			result["outcome"] = reasonInterrupted
			break
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
		if a.Loop == 0 && fresh && s.m.cfg.Now().Sub(started) < briefest {
			break
		}
	}
	result["played_ms"] = s.m.cfg.Now().Sub(begun).Milliseconds()
	return outcome{result: result}, nil
}

// soundCode is the code of call.error for a sound that could not be had.
func soundCode(failure error) string {
	if errors.Is(failure, errNoMP3) {
		return codeNotSupported
	}
	return codeActionFailed
}

// prepareSound is the application that plays the files, or the tone, once. failure is why the files cannot be had, build why the
// switch cannot be told.
func (s *session) prepareSound(a *actions.Play) (app esl.App, failure, build, err error) {
	if a.Tone != "" {
		spec, known := actions.ToneSpec(a.Tone)
		if !known {
			return app, fmt.Errorf("there is no tone %q", a.Tone), nil, nil
		}
		app, build = esl.Tone(spec, 1)
		return app, nil, build, nil
	}
	files, failure, err := s.fetchFiles(a.URLs)
	if failure != nil || err != nil {
		return app, failure, nil, err
	}
	app, build = esl.Playback(files...)
	return app, nil, build, nil
}

// playsMP3 says whether the node can play MP3 files.
func (s *session) playsMP3() (has bool, err error) {
	err = s.order("ask for a module", func(ctx context.Context) (err error) {
		has, err = s.node.capable(ctx, moduleMP3)
		return err
	})
	return has, err
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
			return
		}
		s.box.put(message{broken: true})
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
	dir := s.m.cfg.mediaDir(s.node.row)
	mp3, err := s.playsMP3()
	if err != nil {
		return nil, nil, err
	}
	var held []string
	err = s.beside(func(ctx context.Context) {
		for _, url := range urls {
			var file string
			if file, failure = s.m.media.fetch(ctx, dir, url, mp3); failure != nil {
				return
			}
			held = append(held, file)
			if file, failure = s.node.place(ctx, file); failure != nil {
				return
			}
			files = append(files, file)
		}
	})
	s.flow.files = append(s.flow.files, held...)
	return files, failure, err
}
