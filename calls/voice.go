package calls

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// EngineHTTP is the voice engine that asks a text-to-speech server of the operator's; any other is a speech engine of the switch.
const EngineHTTP = "http"

// fallbackEngine and fallbackVoice speak when the server does not, and the node can.
const (
	fallbackEngine = "flite"
	fallbackVoice  = "slt"
	moduleFlite    = "mod_flite"
)

// Synthesis is the operator's text-to-speech server. It is asked by POST with {"text", "voice", "language"} and answers with a WAV
// file, or MP3 where the nodes have mod_shout.
type Synthesis struct {
	// URL is where it is. It is the operator's own, so it may be on a private network.
	URL string
	// Token, when set, is sent as a bearer token.
	Token string
	// Client makes the requests. Default: http.DefaultClient.
	Client *http.Client
	// Keep is how long its answers serve again where they do not say so themselves. Default 24 h.
	Keep time.Duration
}

// speech is a text as the switch is to be told it: to its own engine, or as a file.
type speech struct {
	file  string
	voice string
	text  string
}

// prepareSpeech finds out how a text is spoken. failure is why it cannot be; err ends the flow.
func (s *session) prepareSpeech(a *actions.Say) (sp speech, failure, err error) {
	sp = speech{voice: cmp.Or(a.Voice, s.m.cfg.Voice), text: a.Text}
	if s.m.cfg.VoiceEngine != EngineHTTP {
		return sp, nil, nil
	}
	mp3, err := s.playsMP3()
	if err != nil {
		return sp, nil, err
	}
	dir := s.m.cfg.mediaDir(s.node.row)
	var held string
	err = s.beside(func(ctx context.Context) {
		if held, failure = s.m.media.synthesize(ctx, dir, mp3, sp.voice, a.Language, a.Text); failure == nil {
			sp.file, failure = s.node.place(ctx, held)
		}
	})
	if held != "" {
		s.flow.files = append(s.flow.files, held)
	}
	if err != nil {
		return sp, nil, err
	}
	if failure == nil {
		return sp, nil, nil
	}
	sp.file = ""
	s.log.Warn("text-to-speech server failed", "error", failure)
	has := false
	err = s.order("ask for a module", func(ctx context.Context) (err error) {
		has, err = s.node.capable(ctx, moduleFlite)
		return err
	})
	if err != nil || !has {
		return sp, fmt.Errorf("the text-to-speech server failed: %w", failure), err
	}
	sp.voice = fallbackVoice
	return sp, nil, nil
}

// app is the application that speaks.
func (sp speech) app(engine string) (esl.App, error) {
	if sp.file != "" {
		return esl.Playback(sp.file)
	}
	return esl.Speak(switchEngine(engine), sp.voice, sp.text)
}

// prompt is the speech as a part of a prompt.
func (sp speech) prompt() (esl.Prompt, error) {
	if sp.file != "" {
		return esl.FilePrompt(sp.file)
	}
	return esl.SpeechPrompt(sp.text)
}

// switchEngine is the engine of the switch that speaks what is not a file.
func switchEngine(engine string) string {
	if engine == EngineHTTP {
		return fallbackEngine
	}
	return engine
}

// synthesize has the operator's server speak a text and returns the file, which the caller releases. What was spoken once is
// kept, also without a word on how long it may be: the same text sounds the same tomorrow.
func (st *mediaStore) synthesize(ctx context.Context, dir string, mp3 bool, voice, language, text string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, st.cfg.MediaTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]string{"text": text, "voice": voice, "language": language})
	if err != nil {
		return "", fmt.Errorf("write the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, st.cfg.Synthesis.URL, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "audio/wav, audio/x-wav, audio/mpeg")
	if st.cfg.Synthesis.Token != "" {
		req.Header.Set("Authorization", "Bearer "+st.cfg.Synthesis.Token)
	}
	digest := sha256.Sum256(body)
	return st.obtain(wanted{
		key: dir + " speech " + hex.EncodeToString(digest[:]), dir: dir, mp3: mp3, req: req, client: st.cfg.Synthesis.Client, keep: st.cfg.Synthesis.Keep,
	})
}

// check refuses a voice engine that cannot speak.
func (y *Synthesis) check(engine string) error {
	if engine == EngineHTTP && y.URL == "" {
		return errors.New("calls: the voice engine http needs Synthesis.URL")
	}
	return nil
}
