package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// bootTime bounds how long a FreeSWITCH may take until its Event Socket answers; 2 s is usual on an idle machine, much more on a busy one.
	bootTime = 2 * time.Minute
	// stopTime is how long a FreeSWITCH gets for an orderly end before it is killed.
	stopTime = time.Second
	// bootedMark stands in the banner that switch_core.c logs once every module is loaded.
	bootedMark = "cluecon.com/"
)

// process is one FreeSWITCH with its directories.
type process struct {
	binary  string
	base    string
	env     []string
	eslAddr string
	// password opens the Event Socket; empty means that nobody is expected to get in, and the SIP profile is waited for.
	password string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

func (p *process) confDir() string { return filepath.Join(p.base, "conf") }
func (p *process) logFile() string { return filepath.Join(p.base, "log", "freeswitch.log") }

// start runs the binary and waits until its Event Socket answers and the modules are loaded.
func (p *process) start(ctx context.Context) error {
	// Normal priority and no calibration of clocks: tests share the machine with each other.
	args := []string{"-nonat", "-nocal", "-np", "-nc", "-nf", "-conf", p.confDir()}
	for flag, folder := range map[string]string{
		"-log": "log", "-run": "run", "-db": "db", "-temp": "tmp", "-recordings": "recordings", "-sounds": "sounds",
		"-storage": "storage", "-cache": "cache", "-certs": "certs", "-scripts": "scripts", "-htdocs": "htdocs", "-grammar": "grammar",
	} {
		path := filepath.Join(p.base, folder)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("start FreeSWITCH: %w", err)
		}
		args = append(args, flag, path)
	}
	if err := writeCertificates(filepath.Join(p.base, "certs")); err != nil {
		return err
	}
	if mod := modules(p.binary); mod != "" {
		args = append(args, "-mod", mod)
	}
	out, err := os.OpenFile(filepath.Join(p.base, "out.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start FreeSWITCH: %w", err)
	}
	defer func() { _ = out.Close() }()

	// The switch outlives the context of its start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), p.binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.base, "LANG=C"}, p.env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start FreeSWITCH: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	p.mu.Lock()
	p.cmd, p.exited = cmd, exited
	p.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	if err := p.ready(ctx, exited); err != nil {
		p.kill()
		return err
	}
	return nil
}

// ready waits until the switch says that it is ready and its SIP profile runs.
func (p *process) ready(ctx context.Context, exited <-chan struct{}) error {
	var probe *Probe
	defer func() {
		if probe != nil {
			_ = probe.Close()
		}
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var last error
		switch {
		case p.password == "":
			last = p.started(ctx)
		case probe == nil:
			probe, last = DialESL(ctx, p.eslAddr, p.password)
		}
		if probe != nil {
			last = answers(ctx, probe)
		}
		if last == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("FreeSWITCH ended while it started, last answer %w", last)
		case <-ctx.Done():
			return fmt.Errorf("FreeSWITCH did not become ready: %w", last)
		case <-tick.C:
		}
	}
}

// answers asks what tells that every module is there and that SIP is heard.
func answers(ctx context.Context, probe *Probe) error {
	for question, want := range map[string]string{"fsctl ready_check": "true", "sofia status": "RUNNING"} {
		reply, err := probe.API(ctx, question)
		if err != nil {
			return err
		}
		if !strings.Contains(reply, want) {
			return fmt.Errorf("%s: %.60s", question, reply)
		}
	}
	return nil
}

// started reports whether the log has the banner that ends a start and the Event Socket is there, which its own thread opens, for a switch
// that lets nobody ask.
func (p *process) started(ctx context.Context) error {
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return err
	}
	if !strings.Contains(string(log), bootedMark) {
		return errors.New("no banner in the log yet")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.eslAddr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// stop ends the process in an orderly way, or kills it when that takes too long.
func (p *process) stop() {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(stopTime):
		p.kill()
	}
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	cmd, exited := p.cmd, p.exited
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-exited
}

// logText returns what the switch logged and, when it logged nothing, what it printed.
func (p *process) logText() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil || len(text) == 0 {
		text, _ = os.ReadFile(filepath.Join(p.base, "out.log"))
	}
	return string(text)
}
