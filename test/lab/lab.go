package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	loopback        = "127.0.0.1"
	descriptionFile = "lab.json"
	// longestDir keeps the longest socket, <dir>/minion-NN/sock/minion_event_<10>_pull.ipc, within
	// the 108 bytes that a Unix socket's address has.
	longestDir = 56
)

// EnvKeep, when set to 1, leaves the folder of a lab in place on Down, for its logs.
const EnvKeep = "ODUFLOW_LAB_KEEP"

// Options say what Up starts. The zero value but for Salt is a lab without minions.
type Options struct {
	Salt    string // the line: "3006", "3007" or "3008"
	Minions int    // their IDs are minion-1 to minion-N, keys accepted
	Dir     string // "" makes a fresh /var/tmp/oduflow-lab-XXXX; else it must be absent or empty
	Repo    string // the checkout; "" looks upward from the working directory
	Bin     string // folder with masterd, minion-executor and custom; "" builds them from Repo

	MasterConf map[string]any            // laid over the master's configuration, mappings merged
	MinionConf map[string]any            // laid over every minion's
	PerMinion  map[string]map[string]any // laid over one minion's, by ID
	Masterd    map[string]any            // laid over masterd's

	NoMasterd bool      // Salt alone
	NoAPI     bool      // no salt-api
	Log       io.Writer // progress, a line each; nil for none
}

// Description is what lab.json holds: all that is needed to find and to end a lab.
type Description struct {
	Dir     string             `json:"dir"`
	Line    string             `json:"line"`    // "3006"
	Version string             `json:"version"` // "3006.29"
	Venv    string             `json:"venv"`
	Repo    string             `json:"repo"`
	Root    bool               `json:"root"` // as in Salt's packages, and not all as the caller
	Minions []string           `json:"minions"`
	Ports   Ports              `json:"ports"`
	Caller  Account            `json:"caller"`
	Master  Account            `json:"master"`  // salt-master's and salt-api's
	Masterd Account            `json:"masterd"` // masterd's
	Parts   map[string]session `json:"parts"`   // by part, the session it runs in

	APISecret string `json:"api_secret"` // the password of salt-api's login "labapi"
	NoMasterd bool   `json:"no_masterd"`
	NoAPI     bool   `json:"no_api"`
	Ready     bool   `json:"ready"` // Up got to its end
}

// Lab is a lab that is up. Its methods may be called from several goroutines.
type Lab struct {
	Description

	log   io.Writer
	guard *guard

	mu    sync.Mutex // guards Parts, procs and lab.json
	procs map[string]*child
}

// Up starts a lab and returns when the master takes requests, every minion is ready and salt-api and
// masterd answer. If it fails, or ctx ends, nothing of the lab is left but its error.
//
// The lab lives until Down, or until this process ends in whatever way.
func Up(ctx context.Context, o Options) (*Lab, error) {
	r, err := findRelease(o.Salt)
	if err != nil {
		return nil, err
	}
	if o.Minions < 0 || o.Minions > 99 {
		return nil, fmt.Errorf("%d minions: want 0 to 99", o.Minions)
	}
	l := &Lab{log: o.Log, procs: make(map[string]*child)}
	l.Line, l.Version, l.Root = r.line, r.version(), os.Geteuid() == 0
	l.NoMasterd, l.NoAPI = o.NoMasterd, o.NoAPI
	l.Parts = make(map[string]session)
	for i := 1; i <= o.Minions; i++ {
		l.Minions = append(l.Minions, "minion-"+strconv.Itoa(i))
	}
	if l.Repo, err = findRepo(o.Repo); err != nil {
		return nil, err
	}
	if l.Venv, err = ensureVenv(ctx, r, l.logf); err != nil {
		return nil, err
	}
	if l.Ports, err = choosePorts(); err != nil {
		return nil, err
	}
	if l.Caller, err = caller(); err != nil {
		return nil, err
	}
	if l.Dir, err = makeDir(o.Dir); err != nil {
		return nil, err
	}
	if l.guard, err = startGuard(l.Dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(l.Dir))
	}
	if err := l.bringUp(ctx, o); err != nil {
		err = fmt.Errorf("start lab %s with Salt %s: %w", l.Dir, l.Version, err)
		return nil, errors.Join(err, l.Down())
	}
	return l, nil
}

func (l *Lab) bringUp(ctx context.Context, o Options) error {
	began := time.Now()
	if err := l.save(); err != nil { // from here on, teardown knows the lab
		return err
	}
	l.Master, l.Masterd = l.Caller, l.Caller
	if l.Root {
		var err error
		if l.Master, l.Masterd, err = claimAccounts(ctx, l.Dir); err != nil {
			return err
		}
	}
	if err := l.lay(o); err != nil {
		return err
	}
	if err := l.startEverything(ctx, o); err != nil {
		return err
	}
	l.mu.Lock()
	l.Ready = true
	l.mu.Unlock()
	l.logf("Salt %s, %d minion(s), up in %.1f s in %s", l.Version, len(l.Minions), time.Since(began).Seconds(), l.Dir)
	return l.save()
}

// startEverything starts all parts at once: a minion asks until its master is there. masterd comes
// when the master is, and its programs are built meanwhile.
func (l *Lab) startEverything(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	tasks := []func(context.Context) error{}
	if l.NoMasterd {
		tasks = append(tasks, l.StartMaster)
	} else {
		built := make(chan error, 1)
		go func() { built <- l.installPrograms(ctx, o) }()
		tasks = append(tasks, func(ctx context.Context) error {
			if err := l.StartMaster(ctx); err != nil {
				return errors.Join(err, <-built)
			}
			if err := <-built; err != nil {
				return err
			}
			return l.StartMasterd(ctx)
		})
	}
	for i := range l.Minions {
		tasks = append(tasks, func(ctx context.Context) error { return l.StartMinion(ctx, i+1) })
	}
	if !l.NoAPI {
		tasks = append(tasks, l.StartAPI)
	}
	results := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() {
			err := task(ctx)
			if err != nil {
				cancel() // the others needn't wait
			}
			results <- err
		}()
	}
	var failed []error
	for range tasks {
		if err := <-results; err != nil && (len(failed) == 0 || !errors.Is(err, context.Canceled)) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Down ends every process of the lab, removes the users that were made for it and its folder. It
// does all of this whatever fails on the way, and may be repeated.
func (l *Lab) Down() error {
	err := teardown(l.Dir, l.sessions())
	l.guard.dismiss()
	l.mu.Lock()
	parts := slices.Collect(maps.Keys(l.procs))
	l.mu.Unlock()
	for _, part := range parts {
		err = errors.Join(err, l.reaped(part))
	}
	return err
}

// Detach leaves the lab running when this process ends. Attach and Down end it later.
func (l *Lab) Detach() { l.guard.dismiss() }

// Attach finds a lab that was left running in dir.
func Attach(dir string, log io.Writer) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	d, err := readDescription(dir)
	if err != nil {
		return nil, err
	}
	return &Lab{Description: d, log: log, procs: make(map[string]*child)}, nil
}

// teardown ends the lab in dir, of which it needs to know nothing but what lies there.
func teardown(dir string, sessions []session) error {
	if d, err := readDescription(dir); err == nil {
		for _, s := range d.Parts {
			sessions = append(sessions, s)
		}
	}
	var problems []error
	if left := killAll(dir, sessions, 20*time.Second); len(left) > 0 {
		problems = append(problems, fmt.Errorf("lab %s: still running after SIGKILL:%s", dir, describe(left)))
	}
	if os.Geteuid() == 0 {
		if err := releaseAccounts(context.Background(), dir); err != nil {
			problems = append(problems, err)
		}
	}
	if os.Geteuid() == 0 {
		unmountBelow(dir) // what a test that was killed has left there
	}
	if os.Getenv(EnvKeep) != "1" {
		if err := removeDir(dir); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// unmountBelow takes every file system away that is mounted below a lab's folder, the last one first.
func unmountBelow(dir string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = syscall.Unmount(fields[1], syscall.MNT_DETACH)
		}
	}
}

// removeDir removes the folder, its description last, so that what could not be removed still says
// what it is. A folder without a description is not a lab's and is left alone.
func removeDir(dir string) error {
	description := filepath.Join(dir, descriptionFile)
	if _, err := os.Lstat(description); err != nil {
		if empty, _ := os.ReadDir(dir); len(empty) == 0 {
			_ = os.Remove(dir)
		}
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != descriptionFile {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}

// Running lists the folders of the caller's own labs, found by their description or, where that is
// gone, by a process that carries their marker.
func Running() []string {
	found := make(map[string]bool)
	descriptions, _ := filepath.Glob("/var/tmp/oduflow-lab-*/" + descriptionFile)
	for _, path := range descriptions {
		if ownedBy(path, os.Geteuid()) {
			found[filepath.Dir(path)] = true
		}
	}
	for _, dir := range markedFolders() {
		description := filepath.Join(dir, descriptionFile)
		if _, err := os.Lstat(description); err != nil || ownedBy(description, os.Geteuid()) {
			found[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// DownAt ends the lab in dir, also one of which only processes are left.
func DownAt(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return teardown(dir, nil)
}

func markedFolders() []string {
	var dirs []string
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, item := range strings.Split(string(environ), "\x00") {
			if dir, ok := strings.CutPrefix(item, envMark+"="); ok && filepath.IsAbs(dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func readDescription(dir string) (Description, error) {
	raw, err := os.ReadFile(filepath.Join(dir, descriptionFile))
	if errors.Is(err, os.ErrNotExist) {
		return Description{}, fmt.Errorf("no lab in %s", dir)
	}
	if err != nil {
		return Description{}, err
	}
	var d Description
	if err := json.Unmarshal(raw, &d); err != nil {
		return Description{}, fmt.Errorf("%s of %s: %w", descriptionFile, dir, err)
	}
	if d.Dir != dir {
		return Description{}, fmt.Errorf("%s describes the lab in %s", filepath.Join(dir, descriptionFile), d.Dir)
	}
	return d, nil
}

// save writes lab.json whole: a reader sees the old one or the new one.
func (l *Lab) save() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, err := json.MarshalIndent(l.Description, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(l.Dir, descriptionFile)
	if err := os.WriteFile(path+".new", append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (l *Lab) sessions() []session {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]session, 0, len(l.Parts))
	for _, s := range l.Parts {
		all = append(all, s)
	}
	return all
}

func (l *Lab) logf(format string, args ...any) {
	if l.log != nil {
		_, _ = fmt.Fprintf(l.log, "lab: "+format+"\n", args...)
	}
}

func makeDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("/var/tmp", "oduflow-lab-")
		if err != nil {
			return "", err
		}
		return made, os.Chmod(made, 0o755) // the lab's other users pass through
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if len(dir) > longestDir {
		return "", fmt.Errorf("folder %s: longer than %d bytes, and Unix sockets in it would not fit", dir, longestDir)
	}
	if !regexp.MustCompile(`^/[A-Za-z0-9/._+-]+$`).MatchString(dir) {
		return "", fmt.Errorf("folder %s: letters, digits and ._+- only", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // the lab's other users pass through
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("folder %s is not empty", dir)
	}
	if os.Geteuid() == 0 && !readableByAll(dir) {
		return "", fmt.Errorf("folder %s: users %s and %s could not enter it", dir, saltUser, masterdUser)
	}
	return dir, nil
}

// findRepo looks for the checkout that holds go.mod of this module.
func findRepo(given string) (string, error) {
	start := given
	if start == "" {
		var err error
		if start, err = os.Getwd(); err != nil {
			return "", err
		}
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/oduflow/oduflow-salt\n") {
			return dir, nil
		}
		if given != "" || dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no checkout of oduflow-salt at or above %s", start)
		}
	}
}
