//go:build salt

// Package faults breaks every named step of both sides on real Salt, and what
// stands between them, and shows that a request still runs at most once and
// ends as what is true (issue 5, item 7). One lab serves all of it;
// ODUFLOW_SALT names the Salt line. Without ODUFLOW_FAULTS=all it is a sample.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

const (
	sampleMinions = 9
	allMinions    = 12
	// queuers are the last minions: they run two jobs at once and put a third
	// on their disk.
	queuers = 1
)

var (
	all      = os.Getenv("ODUFLOW_FAULTS") == "all"
	minions  = sampleMinions
	salt     *lab.Lab
	odoo     *oduflow.Client
	channel  *relay
	events   *bus
	instance = map[int]string{}
	work     string // built programs, plans and markers
	masterd  plans  // faults planned for masterd
	mounts   bool   // file systems can be mounted here
	report   table
	scene    *stage // of all tests: what one of them has spent stays so
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	line := os.Getenv("ODUFLOW_SALT")
	if line == "" {
		line = "3006"
	}
	if all {
		minions = allMinions
	}
	failed := func(err error) int {
		fmt.Println("faults:", err)
		return 1
	}
	var err error
	if work, err = os.MkdirTemp("/var/tmp", "oduflow-faults-"); err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	bin, err := buildFaulty(ctx)
	if err != nil {
		return failed(err)
	}
	options := lab.Options{Salt: line, Minions: minions, NoAPI: true, Bin: bin, Log: os.Stdout, PerMinion: map[string]map[string]any{}}
	for i := minions - queuers + 1; i <= minions; i++ {
		options.PerMinion[name(i)] = map[string]any{"process_count_max": 2}
	}
	if salt, err = lab.Up(ctx, options); err != nil {
		return failed(err)
	}
	defer func() {
		if err := salt.Down(); err != nil {
			code = failed(err)
		}
	}()
	mounts = canMount()
	unmount, err := stand(ctx)
	defer unmount()
	if err != nil {
		return failed(err)
	}
	defer func() { channel.close(); events.close() }()
	scene = newStage()
	code = m.Run()
	if text := report.String(); text != "" {
		fmt.Print(text)
		path := filepath.Join(salt.Repo, "build", "faults-"+line+".txt")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			return failed(err)
		}
	}
	return code
}

// buildFaulty builds the programs that can be broken, and puts a script in
// masterd's place that tells it where its faults are planned.
func buildFaulty(ctx context.Context) (string, error) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	for _, dir := range []string{"bin", "real", "marks", "bad"} {
		path := filepath.Join(work, dir)
		if err := errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return "", err
	}
	masterd.path = filepath.Join(work, "plan")
	builds := []struct{ out, pkg, cgo, flags string }{
		{"real/masterd", "./masterd", "1", ""},
		{"bin/minion-executor", "./minion-executor", "0", ""},
		{"bin/custom", "./plugins/custom", "0", ""},
	}
	for _, fault := range []string{"die", "killed", "hang"} {
		builds = append(builds, struct{ out, pkg, cgo, flags string }{"bad/" + fault, "./test/faults/badplugin", "0", "-X main.fault=" + fault})
	}
	for _, b := range builds {
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-ldflags", b.flags, "-o", filepath.Join(work, b.out), b.pkg)
		cmd.Dir, cmd.Env = repo, append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return filepath.Join(work, "bin"), writeMasterd(filepath.Join(work, "bin", "masterd"), "")
}

// writeMasterd writes the script that is masterd here; before is put before it.
func writeMasterd(path, before string) error {
	script := fmt.Sprintf("#!/bin/sh\nODUFLOW_FAULTS=%s exec %s %s/real/masterd \"$@\"\n", masterd.path, before, work)
	return os.WriteFile(path, []byte(script), 0o755)
}

// stand puts the relay and the bus between Salt's master and masterd, by a copy
// of the master's configuration for masterd alone, and its database on a small
// disk.
func stand(ctx context.Context) (unmount func(), err error) {
	unmount = func() {}
	if channel, err = newRelay(fmt.Sprintf("127.0.0.1:%d", salt.Ports.Ret)); err != nil {
		return unmount, err
	}
	sock := filepath.Join(salt.Dir, "bus")
	if err := errors.Join(os.Mkdir(sock, 0o755), os.Chmod(sock, 0o755)); err != nil {
		return unmount, err
	}
	uid, gid := -1, -1
	if salt.Root {
		uid, gid = salt.Master.UID, salt.Master.GID
	}
	if events, err = newBus(filepath.Join(salt.SockDir(), busSocket), filepath.Join(sock, busSocket), salt.Line, uid, gid); err != nil {
		return unmount, err
	}
	master, err := rewrite(salt.MasterConfigPath(), filepath.Join(salt.MasterConfigDir(), "relayed"), func(c map[string]any) {
		c["ret_port"], c["sock_dir"] = channel.port(), sock
	})
	if err != nil {
		return unmount, err
	}
	if _, err = rewrite(salt.MasterdConfigPath(), salt.MasterdConfigPath(), func(c map[string]any) {
		c["salt"].(map[string]any)["config"] = master
	}); err != nil {
		return unmount, err
	}
	if err := salt.StopMasterd(ctx); err != nil {
		return unmount, err
	}
	if mounts {
		undo, err := smallDatabase(ctx)
		if err != nil {
			return unmount, err
		}
		unmount = func() { _ = salt.StopMasterd(context.Background()); undo() }
	}
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	joined := events.rejoined(starting, func() {
		if err = salt.StartMasterd(starting); err != nil {
			cancel() // nobody will join
		}
	})
	if err != nil || joined != nil {
		return unmount, errors.Join(err, joined)
	}
	var adopted sync.WaitGroup
	problems := make([]error, minions+1)
	for i := 1; i <= minions; i++ {
		instance[i] = oduflow.NewUUID()
		id := instance[i]
		adopted.Go(func() { problems[i] = salt.Adopt(ctx, i, id) })
	}
	adopted.Wait()
	token, err := salt.Token(ctx, "custom", "faults")
	if err := errors.Join(append(problems, err)...); err != nil {
		return unmount, err
	}
	odoo, err = oduflow.OverTLS(salt.MasterdURL(), salt.MasterdCert(), token)
	return unmount, err
}

const busSocket = "master_event_pub.ipc"

// rewrite changes a YAML file and keeps whom it belongs to.
func rewrite(from, to string, change func(map[string]any)) (string, error) {
	raw, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(from)
	if err != nil {
		return "", err
	}
	var c map[string]any
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return "", err
	}
	change(c)
	if raw, err = yaml.Marshal(c); err != nil {
		return "", err
	}
	if err := os.WriteFile(to, raw, info.Mode().Perm()); err != nil {
		return "", err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if os.Geteuid() == 0 {
		return to, os.Chown(to, int(owner.Uid), int(owner.Gid))
	}
	return to, nil
}

func name(i int) string { return fmt.Sprintf("minion-%d", i) }

// plans are the faults planned for the masterd that runs, by their markers.
type plans struct {
	path  string
	mu    sync.Mutex
	lines map[string]string
}

func (p *plans) add(marker, line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines == nil {
		p.lines = map[string]string{}
	}
	p.lines[marker] = line
	return p.write()
}

func (p *plans) remove(marker string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lines, marker)
	return p.write()
}

func (p *plans) write() error {
	var text strings.Builder
	for _, line := range p.lines {
		text.WriteString(line + "\n")
	}
	if err := os.WriteFile(p.path+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(p.path+".new", p.path)
}

// table is what the matrix showed.
type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	step, fault, status, code string
	runs                      int
	took                      time.Duration
	wrong                     string
}

func (t *table) add(r row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Salt %s: what each fault came to\n", salt.Version)
	fmt.Fprintf(&b, "%-34s %-34s %-10s %-30s %4s %8s\n", "step", "fault", "receipt", "code", "runs", "seconds")
	for _, r := range t.rows {
		code := r.code
		if code == "" {
			code = "-"
		}
		fmt.Fprintf(&b, "%-34s %-34s %-10s %-30s %4d %8.1f %s\n", r.step, r.fault, r.status, code, r.runs, r.took.Seconds(), r.wrong)
	}
	return b.String()
}
