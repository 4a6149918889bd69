package ledger

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	dirMode  = 0o700
	fileMode = 0o600

	// roomSize is what a fact takes on disk. Facts are far smaller; they are
	// padded, so that writing one over its reserved room needs no new block.
	roomSize  = 1024
	roomFiles = 4 // prepared, decision, effect, outcome

	maxFact = 16 << 10
	tempTag = ".tmp."
)

// Codes of a ledger that can't be used as it is.
const (
	Damaged problem.Code = "ledger_damaged" // a file that no executor wrote
	Newer   problem.Code = "ledger_newer"   // written by a newer executor
	Locked  problem.Code = "ledger_locked"  // another executor has its turn, and doesn't end it
)

// errTaken says that a fact, or the one that excludes it, is there already, or
// that its record isn't the one any more that was read.
var errTaken = errors.New("decided already")

// IsTaken says whether a write lost against one that was there already. Read
// the record again to see what was decided; it may be gone.
func IsTaken(err error) bool { return errors.Is(err, errTaken) }

func (l *Ledger) path(parts ...string) string {
	return filepath.Join(append([]string{l.dir}, parts...)...)
}

// step takes one step of writing a fact.
func (l *Ledger) step(fact, part string, take func() error) error {
	return l.hook.Do(fault.Step(fact+"."+part), take)
}

func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(raw) >= roomSize {
		return nil, fmt.Errorf("a fact of %d bytes is over the room of %d", len(raw), roomSize)
	}
	padded := bytes.Repeat([]byte{' '}, roomSize)
	copy(padded, raw)
	padded[roomSize-1] = '\n'
	return padded, nil
}

func (l *Ledger) tempName() (string, error) {
	var suffix [8]byte
	if _, err := io.ReadFull(l.random, suffix[:]); err != nil {
		return "", err
	}
	return tempTag + hex.EncodeToString(suffix[:]), nil
}

// writeTemp writes a fact beside its place, over reserved room where there is
// some, and syncs it. Only one process can take a piece of room, since taking
// it is a rename.
func (l *Ledger) writeTemp(dir string, content []byte) (string, error) {
	name, err := l.tempName()
	if err != nil {
		return "", err
	}
	temp := filepath.Join(dir, name)
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	for i := range roomFiles {
		if os.Rename(filepath.Join(dir, roomName(i)), temp) == nil {
			flags = os.O_WRONLY
			break
		}
	}
	f, err := os.OpenFile(temp, flags, fileMode)
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt(content, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(temp)
		return "", err
	}
	return temp, nil
}

func roomName(i int) string { return fmt.Sprintf("room.%d", i) }

// create makes a fact true: whole, synced, once. Where name exists it returns
// errTaken and has changed nothing.
func (l *Ledger) create(dir, name, fact string, v any) error {
	return l.put(dir, name, fact, v, func(temp, final string) error {
		err := os.Link(temp, final)
		if errors.Is(err, fs.ErrExist) {
			return errTaken
		}
		return err
	})
}

// replace puts a fact in the place of an earlier one.
func (l *Ledger) replace(dir, name, fact string, v any) error {
	return l.put(dir, name, fact, v, os.Rename)
}

func (l *Ledger) put(dir, name, fact string, v any, place func(temp, final string) error) error {
	content, err := encode(v)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "a fact can't be encoded")
	}
	if err := l.advance(); err != nil {
		return err
	}
	var temp string
	err = l.step(fact, "write", func() error {
		temp, err = l.writeTemp(dir, content)
		return err
	})
	if temp != "" {
		defer func() { _ = os.Remove(temp) }()
	}
	if err == nil {
		err = l.step(fact, "link", func() error { return place(temp, filepath.Join(dir, name)) })
	}
	if err == nil {
		err = l.step(fact, "sync", func() error { return syncDir(dir) })
	}
	if IsTaken(err) {
		return err
	}
	return unwritable(err, "%s can't be written", fact)
}

func unwritable(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return problem.Wrap(problem.LedgerUnwritable, err, "the ledger: "+format, args...)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// load reads a fact. ok is false where it isn't there.
func load(path string, version int, v any) (ok bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, problem.Wrap(Damaged, err, "the ledger: %s can't be read", filepath.Base(path))
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxFact+1))
	if err != nil || len(raw) > maxFact {
		return false, problem.Wrap(Damaged, err, "the ledger: %s can't be read", filepath.Base(path))
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return false, problem.Wrap(Damaged, err, "the ledger: %s is damaged", filepath.Base(path))
	}
	if head.Version < 1 {
		return false, problem.New(Damaged, "the ledger: %s has no version", filepath.Base(path))
	}
	if head.Version > version {
		return false, problem.New(Newer, "the ledger: %s has version %d, this executor knows %d", filepath.Base(path), head.Version, version).
			WithHint("install the executor that wrote it, or a newer one")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return false, problem.Wrap(Damaged, err, "the ledger: %s is damaged", filepath.Base(path))
	}
	return true, nil
}

// ensureDir creates a folder if it isn't there.
func ensureDir(path string) (created bool, err error) {
	err = os.Mkdir(path, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// What has to be free before a request is prepared, besides the room that is
// then reserved: folders and file names take space too.
const (
	minFreeBytes = 1 << 20
	minFreeFiles = 64
)

func checkSpace(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return unwritable(err, "its file system can't be asked")
	}
	if st.Bavail*uint64(st.Bsize) < minFreeBytes || (st.Files > 0 && st.Ffree < minFreeFiles) { //nolint:gosec // a block size is positive
		return problem.New(problem.LedgerUnwritable, "the ledger: its file system is full").
			WithHint("free at least %d kB in %s", minFreeBytes>>10, dir)
	}
	return nil
}

// reserve makes the room that the facts of a record will be written over.
func (l *Ledger) reserve(dir string) error {
	err := l.step("room", "write", func() error {
		blank, err := encode(struct{}{})
		if err != nil {
			return err
		}
		for i := range roomFiles {
			f, err := os.OpenFile(filepath.Join(dir, roomName(i)), os.O_WRONLY|os.O_CREATE, fileMode)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(blank, 0)
			if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
				return err
			}
		}
		return l.reserveLease()
	})
	if err == nil {
		err = l.step("room", "sync", func() error { return syncDir(dir) })
	}
	return unwritable(err, "no room for the result of a request")
}

// sweep removes what a closed record needs no more. It may fail: what stays is
// never read.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempTag) || strings.HasPrefix(e.Name(), "room.") {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
