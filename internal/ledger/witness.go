package ledger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// The folder for this boot holds what a ledger that is put back from a copy
// has forgotten. It is outside of the ledger and meant to be lost with the
// boot:
//
//	id               random, made with the folder
//	begun/<request>  its effect was handed over; flocked by its executor
//	done/<request>   the same, and what came of it
//
// A witness is written after "begun" and before the effect, and gets its outcome
// after the record has it, so that a record which says less than its witness can
// only be one that was put back. Such a record gets its facts again from the
// witness. docs/ledger.md has a table of what is read from the two.
//
// A record without a witness proves that its effect never began only where the
// folder is the one that was there when its ticket was given, in this boot.
const (
	runIDFile    = "id"
	witnessBegun = "begun"
	witnessDone  = "done"

	witnessVersion = 1
)

// witness is the content of a witness: what it takes to make the record again.
type witness struct {
	Version  int          `json:"version"`
	Prepared preparedFact `json:"prepared"`
	Outcome  *fact        `json:"outcome,omitempty"` // finished or settled
}

func (l *Ledger) run(parts ...string) string {
	return filepath.Join(append([]string{l.runDir}, parts...)...)
}

// ensureRun makes the folder for this boot and gives its id. The folder has to
// be ours alone: whoever can write there can forge what a record says.
func (l *Ledger) ensureRun() (string, error) {
	for _, dir := range []string{l.runDir, l.run(witnessBegun), l.run(witnessDone)} {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return "", unwritable(err, "the folder for this boot can't be made")
		}
	}
	if err := ownDir(l.runDir); err != nil {
		return "", err
	}
	id, err := l.runID()
	if err != nil || id != "" {
		return id, err
	}
	var drawn [8]byte
	if _, err := io.ReadFull(l.random, drawn[:]); err != nil {
		return "", problem.Wrap(problem.Internal, err, "no id can be drawn")
	}
	id = hex.EncodeToString(drawn[:])
	temp, err := l.writeRun([]byte(id))
	if err == nil {
		err = os.Rename(temp, l.run(runIDFile))
	}
	return id, unwritable(err, "the folder for this boot can't be written")
}

// runID is "" where there is no folder for this boot.
func (l *Ledger) runID() (string, error) {
	raw, err := os.ReadFile(l.run(runIDFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", problem.Wrap(Damaged, err, "the ledger: the folder for this boot can't be read")
	}
	return string(raw), nil
}

// ownDir refuses a folder that others can read or write.
func ownDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return unwritable(err, "its folder can't be read")
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 || !info.IsDir() {
		return problem.New(problem.LedgerUnwritable, "the ledger: its folder isn't ours alone").
			WithHint("%s has to belong to the minion's user, with mode 0700", dir)
	}
	return nil
}

// writeRun writes a file beside its place. Nothing here outlives the boot, so
// nothing is synced.
func (l *Ledger) writeRun(content []byte) (string, error) {
	name, err := l.tempName()
	if err != nil {
		return "", err
	}
	temp := l.run(name)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(temp)
		return "", err
	}
	return temp, nil
}

// testify leaves the witness that the effect of a record is handed over, and
// keeps it locked for as long as this process lives. errTaken: it was handed
// over before in this boot, so this must not do it again.
func (s *Session) testify(r *Record) error {
	l := s.l
	if l.runDir == "" {
		return nil
	}
	if l.witnessState(r.Request) != "" {
		return errTaken
	}
	var temp string
	err := l.step("witness", "write", func() error {
		raw, err := json.Marshal(witness{Version: witnessVersion, Prepared: r.prepared})
		if err == nil {
			temp, err = l.writeRun(raw)
		}
		return err
	})
	if temp != "" {
		defer func() { _ = os.Remove(temp) }()
	}
	if err == nil {
		err = l.step("witness", "link", func() error {
			f, err := os.Open(temp)
			if err == nil {
				err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
			}
			if err == nil {
				err = os.Link(temp, l.run(witnessBegun, r.Request))
			}
			if err != nil {
				if f != nil {
					_ = f.Close()
				}
				return err
			}
			l.alive = f
			return nil
		})
	}
	if errors.Is(err, fs.ErrExist) {
		return errTaken
	}
	return unwritable(err, "the witness of a run can't be written")
}

// witnessState is the folder that a request's witness is in, "" if there is
// none.
func (l *Ledger) witnessState(request string) string {
	for _, state := range []string{witnessDone, witnessBegun} {
		if _, err := os.Lstat(l.run(state, request)); err == nil {
			return state
		}
	}
	return ""
}

// witnesses lists the requests whose effect was handed over and that were not
// seen to end.
func (l *Ledger) witnesses() ([]string, error) {
	if l.runDir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(l.run(witnessBegun))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, problem.Wrap(Damaged, err, "the ledger: the folder for this boot can't be listed")
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if isRequest(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// conclude adds to a witness what came of the run. It may fail: then a ledger
// that is put back says that the run was interrupted.
func (l *Ledger) conclude(r *Record, outcome fact) {
	if l.runDir == "" || l.witnessState(r.Request) != witnessBegun {
		return
	}
	raw, err := json.Marshal(witness{Version: witnessVersion, Prepared: r.prepared, Outcome: &outcome})
	if err != nil {
		return
	}
	temp, err := l.writeRun(raw)
	if err != nil {
		return
	}
	if os.Rename(temp, l.run(witnessDone, r.Request)) != nil {
		_ = os.Remove(temp)
		return
	}
	_ = os.Remove(l.run(witnessBegun, r.Request))
}

// Alive says whether the executor that handed the effect of a request over
// still lives. It is asked beside the lease, which is a file of the ledger: a
// ledger that is put back has another one than the one that is held.
func (l *Ledger) Alive(request string) bool {
	if l.runDir == "" {
		return false
	}
	f, err := os.Open(l.run(witnessBegun, request))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// remembered gives back to a record what its witness knows and the ledger
// doesn't. r is nil where the ledger has no record, or where that is damaged,
// which it also is if it was put back between two facts.
func (s *Session) remembered(request string, r *Record, damaged error) (*Record, error) {
	l := s.l
	if l.runDir == "" || r != nil && (r.State == Finished || r.State == Settled) {
		return r, damaged
	}
	state := l.witnessState(request)
	if state == "" || r != nil && r.State == Begun && state == witnessBegun {
		return r, damaged
	}
	if r != nil && r.neverRan() {
		return nil, problem.New(Damaged, "the ledger: a record that never began has a witness of its effect")
	}
	var w witness
	if ok, err := load(l.run(state, request), witnessVersion, &w); err != nil || !ok {
		return nil, errors.Join(problem.New(Damaged, "the ledger: a witness can't be read"), err)
	}
	if w.Prepared.Request != request {
		return nil, problem.New(Damaged, "the ledger: a witness is about another request")
	}
	if r != nil && r.State == Begun && w.Prepared.TicketSum != r.prepared.TicketSum {
		return r, nil // what came of another run of it says nothing about this one
	}
	if err := s.restore(r, w); err != nil {
		return nil, err
	}
	return readRecord(s.dir(request), request)
}

// restore writes the facts of a record again that it doesn't have.
func (s *Session) restore(r *Record, w witness) error {
	if r == nil || r.State != Begun {
		if err := s.restoreBegun(r, w.Prepared); err != nil {
			return err
		}
	}
	if w.Outcome == nil {
		return nil
	}
	err := s.l.create(s.dir(w.Prepared.Request), outcomeFile, string(w.Outcome.Kind), *w.Outcome)
	if IsTaken(err) {
		return nil
	}
	return err
}

// restoreBegun writes again what leads to begun.
func (s *Session) restoreBegun(r *Record, p preparedFact) error {
	l, dir := s.l, s.dir(p.Request)
	if err := l.markOpen(p.Request); err != nil {
		return err
	}
	if r == nil {
		if _, err := ensureDir(dir); err != nil {
			return unwritable(err, "a record can't be made")
		}
		if err := syncDir(l.path(recordsDir)); err != nil {
			return unwritable(err, "a record can't be made")
		}
	}
	// The ticket that it ran under, too: the copy may hold an earlier one.
	if err := l.replace(dir, preparedFile, "prepared", p); err != nil {
		return err
	}
	decide := l.create
	if r != nil && r.State == Lapsed {
		decide = l.replace // it said no more than that nothing is known
	}
	now := l.machine.Now().UTC()
	err := decide(dir, decisionFile, "started", fact{Version: versionOf(Started), Kind: Started, At: now})
	if err == nil || IsTaken(err) {
		err = l.create(dir, effectFile, "begun", fact{Version: versionOf(Begun), Kind: Begun, At: now})
	}
	if IsTaken(err) {
		return nil
	}
	return err
}

// unseen says that a record's effect can't have begun without a trace: this is
// the boot in which its ticket was given, and nobody took the witnesses away.
// Where the ledger is configured without a folder for the boot, it is judged by
// itself.
func (s *Session) unseen(r *Record) (bool, error) {
	l := s.l
	if l.runDir == "" {
		return true, nil
	}
	boot, err := l.machine.BootID()
	if err != nil {
		return false, err
	}
	id, err := l.runID()
	if err != nil {
		return false, err
	}
	return boot == r.prepared.Boot && id != "" && id == r.prepared.Run, nil
}
