package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gopkg.in/yaml.v3"
)

// A twin is what a cloned server is: a second minion with the ID, the Salt key, the machine-id and a
// copy of the ledger of the first, on the same master. What lies outside of a disk's copy (its
// processes, its sockets, its folder for this boot) is its own.

const twinPrefix = "twin-"

func (l *Lab) twinPart(i int) string { return fmt.Sprint(twinPrefix, i) }

// TwinDir gives the folders of minion i's twin.
func (l *Lab) TwinDir(i int) MinionDir { return l.minionDir(l.twinPart(i), l.Minions[i-1]) }

// StartTwin copies minion i as it is now and starts the copy beside it.
func (l *Lab) StartTwin(ctx context.Context, i int) error {
	first, twin := l.MinionDir(i), l.TwinDir(i)
	for _, dir := range []string{twin.Root, twin.Config, twin.Tmp, filepath.Join(twin.Root, "sock")} {
		if err := l.mkdir(dir, 0o755, l.Caller); err != nil {
			return err
		}
	}
	if err := l.mkdir(twin.Run, 0o700, l.Caller); err != nil {
		return err
	}
	if err := l.mkdir(twin.Cache, 0o755, l.Caller); err != nil {
		return err
	}
	for from, to := range map[string]string{
		first.PKI: twin.PKI, first.State: twin.State, first.Lib: twin.Lib, first.Etc: twin.Etc,
		filepath.Join(first.Cache, "extmods"): filepath.Join(twin.Cache, "extmods"),
		filepath.Join(first.Cache, "files"):   filepath.Join(twin.Cache, "files"),
	} {
		r, err := l.Run(ctx, l.Caller, "/bin/cp", "-a", from, to)
		if err != nil {
			return err
		}
		if r.Code != 0 {
			return fmt.Errorf("copy %s: %s", from, r.Stderr)
		}
	}
	raw, err := os.ReadFile(filepath.Join(first.Config, "minion"))
	if err != nil {
		return err
	}
	var conf map[string]any
	if err := yaml.Unmarshal(raw, &conf); err != nil {
		return err
	}
	if err := l.writeYAML(filepath.Join(twin.Config, "minion"), merge(conf, l.minionConfig(twin)), 0o644, l.Caller); err != nil {
		return err
	}
	if err := l.write(twin.Log, nil, 0o640, l.Caller); err != nil {
		return err
	}
	return l.startMinion(ctx, l.twinPart(i), twin)
}

// PauseTwin stops minion i's twin where it stands.
func (l *Lab) PauseTwin(i int) error { return l.signal(l.twinPart(i), syscall.SIGSTOP) }

// ResumeTwin lets a paused twin go on.
func (l *Lab) ResumeTwin(i int) error { return l.signal(l.twinPart(i), syscall.SIGCONT) }

// RemoveTwin kills minion i's twin, with its jobs, and removes its folder.
func (l *Lab) RemoveTwin(i int) error {
	if err := l.signal(l.twinPart(i), syscall.SIGKILL); err != nil {
		return err
	}
	return os.RemoveAll(l.TwinDir(i).Root)
}
