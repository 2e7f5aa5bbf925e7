package esl

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A node whose disk we do not share fetches and sends files itself, by mod_http_cache (http_get, http_put), which proves who it is by a
// header of its own configuration, and puts them into place by the application rename, on a channel of mod_loopback's endpoint "null" that
// no telephone is behind. FreeSWITCH has no other command that touches files but those that run a shell, which no node of ours has.

// fileProfile is the profile of http_cache.conf whose header names the node and its token.
const fileProfile = "tandem"

// ErrTransfer is returned where the switch could not fetch or send a file, or has no mod_http_cache: it answers both alike, since the event socket
// replaces what a command that failed has said by "Command not found" (mod_event_socket.c, api_exec). Its log tells more.
var ErrTransfer = errors.New("the switch could not transfer the file, or has no mod_http_cache; its log says why")

// transferred turns the reply of a command of mod_http_cache into ErrTransfer where it failed.
func transferred(verb, reply string, err error) (string, error) {
	refused := new(CommandError)
	if errors.As(err, &refused) && (refused.Reply == "-ERR" || strings.HasSuffix(refused.Reply, "Command not found!")) {
		return "", fmt.Errorf("esl: %s: %w", verb, ErrTransfer)
	}
	return strings.TrimSpace(reply), err
}

// ErrEmptyFile is returned where a file that is to be sent holds nothing.
var ErrEmptyFile = errors.New("the file is empty")

// ErrNotMoved is returned where a file is still where it was after it should have been renamed.
var ErrNotMoved = errors.New("the switch did not rename the file")

// urlPattern is what a URL of ours looks like; nothing of it is syntax in a command line, a list of parameters or a dial string.
var urlPattern = regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)+$`)

func checkURL(field, url string) error {
	if len(url) > 1024 {
		return refuse(field, "is longer than 1024 bytes")
	}
	return checkPattern(field, url, urlPattern, "http:// or https://, a host, a path of letters, digits and . _ ~ -, and nothing else")
}

// FetchFile makes the switch download a file and returns where it has put it (mod_http_cache.c, http_cache_get). A URL must be used once
// only: the switch keeps what it has fetched.
func (n *Node) FetchFile(ctx context.Context, url string) (path string, err error) {
	if err := checkURL("url", url); err != nil {
		return "", err
	}
	reply, err := n.slow(ctx, "http_get", "{profile="+fileProfile+"}"+url)
	if path, err = transferred("http_get", reply, err); err != nil {
		return "", err
	}
	if err := checkFile("path", path); err != nil {
		return "", fmt.Errorf("esl: http_get: the switch replied %q, which is no path that can be used: %w", clip(path), err)
	}
	return path, nil
}

// SendFile makes the switch upload a file of its own with a PUT (mod_http_cache.c, http_cache_put). Whoever takes it must answer 200, 201, 202 or
// 204; anything else is an ErrTransfer. A file without a byte is never sent (mod_http_cache.c, http_put): ErrEmptyFile.
func (n *Node) SendFile(ctx context.Context, url, path string) error {
	if err := checkURL("url", url); err != nil {
		return err
	}
	if err := checkFile("path", path); err != nil {
		return err
	}
	reply, err := n.slowly(ctx, sendLimit, "http_put", "{profile="+fileProfile+"}"+url+" "+path)
	reply, err = transferred("http_put", reply, err)
	if err == nil && reply == "+OK 0" {
		return ErrEmptyFile
	}
	return err
}

// sendLimit bounds the sending of one file.
const sendLimit = 15 * time.Minute

// FileExists asks whether the switch has a file.
func (n *Node) FileExists(ctx context.Context, path string) (bool, error) {
	if err := checkFile("path", path); err != nil {
		return false, err
	}
	reply, err := n.api(ctx, "file_exists", path)
	return strings.TrimSpace(reply) == "true", err
}

// Move is a file that gets another name.
type Move struct{ From, To string }

const (
	// movesAtOnce is how many files one channel renames; the inline dialplan takes 128 applications (mod_dptools.c, inline_dialplan_hunt).
	movesAtOnce = 64
	// moveLook is how often it is looked whether the last one was, moveLimit for how long.
	moveLook  = 5 * time.Millisecond
	moveLimit = 10 * time.Second
)

// MoveFiles renames files of the switch, in the order given; a file of the new name is replaced (rename(2), so both names must be on one
// file system). It returns when all of them have been moved, and ErrNotMoved where one was not; those before and behind it may have been.
func (n *Node) MoveFiles(ctx context.Context, moves []Move) error {
	for _, m := range moves {
		if err := checkFile("from", m.From); err != nil {
			return err
		}
		if err := checkFile("to", m.To); err != nil {
			return err
		}
	}
	for len(moves) > 0 {
		batch := moves[:min(movesAtOnce, len(moves))]
		moves = moves[len(batch):]
		if err := n.moveFiles(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) moveFiles(ctx context.Context, moves []Move) error {
	ctx, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	applications := make([]string, 0, len(moves))
	for _, m := range moves {
		applications = append(applications, "rename:"+m.From+" "+m.To)
	}
	// No CDR: it is no call.
	vars := variables{{"origination_uuid", uuid.NewString()}, {"process_cdr", "false"}}
	line := escapeWord(vars.list()) + "null/files " + escapeWord("m:|:"+strings.Join(applications, "|")) + " inline"
	if _, err := n.slow(ctx, "originate", line); err != nil {
		return fmt.Errorf("rename files of the switch: %w", err)
	}
	// The channel works them off one after the other: when the last is gone, all have had their turn.
	last := moves[len(moves)-1].From
	ticker := time.NewTicker(moveLook)
	defer ticker.Stop()
	for {
		there, err := n.FileExists(ctx, last)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("rename %s: %w within %s", last, ErrNotMoved, moveLimit)
		}
	}
	for _, m := range moves[:len(moves)-1] {
		there, err := n.FileExists(ctx, m.From)
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("rename %s: %w", m.From, ErrNotMoved)
		}
	}
	return nil
}

// LoadedXML returns an element of the configuration that the switch has loaded, as XML, or empty where there is none of the name
// (mod_commands.c, xml_locate_function). It comes from memory, or from whoever is bound to the section.
func (n *Node) LoadedXML(ctx context.Context, section, tag, name string) (string, error) {
	for field, value := range map[string]string{"section": section, "tag": tag, "name": name} {
		if err := checkPattern(field, value, gatewayPattern, "letters, digits, '.', '_' or '-'"); err != nil {
			return "", err
		}
	}
	reply, err := n.slow(ctx, "xml_locate", section+" "+tag+" name "+name)
	if strings.TrimSpace(reply) == "can't find anything" {
		return "", nil
	}
	return reply, err
}
