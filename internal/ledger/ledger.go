package ledger

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const (
	recordsDir = "records"
	openDir    = "open" // one empty file for each record that is prepared or unfinished
	lockFile   = "lock"

	lockPoll = 5 * time.Millisecond
)

// Ledger is an opened ledger. It holds nothing but paths; all truth is on disk.
type Ledger struct {
	dir     string
	runDir  string
	machine Machine
	random  io.Reader
	hook    Hook
	alive   *os.File // the witness of the run that this process has handed over
}

// Config is what Open needs.
type Config struct {
	Dir     string
	RunDir  string // outside of Dir, lost with the boot; see witness.go. "" is for reading, and for tests
	Machine Machine
	Random  io.Reader
	Hook    Hook // nil in production
}

// Open opens the ledger in a folder that has to be ours alone, and creates
// what isn't there. Error: LedgerUnwritable.
func Open(c Config) (*Ledger, error) {
	l := &Ledger{dir: c.Dir, runDir: c.RunDir, machine: c.Machine, random: c.Random, hook: c.Hook}
	if err := os.MkdirAll(c.Dir, dirMode); err != nil {
		return nil, unwritable(err, "its folder can't be made")
	}
	if err := ownDir(c.Dir); err != nil {
		return nil, err
	}
	if _, err := ensureDir(l.path(recordsDir)); err != nil {
		return nil, unwritable(err, "its folder for records can't be made")
	}
	created, err := ensureDir(l.path(openDir))
	if err != nil {
		return nil, unwritable(err, "its folder of open records can't be made")
	}
	if created {
		// Somebody removed the index, or this ledger is new: find what is open.
		if err := l.rebuildOpen(); err != nil {
			_ = os.Remove(l.path(openDir))
			return nil, err
		}
	}
	return l, nil
}

func (l *Ledger) rebuildOpen() error {
	names, err := l.names(recordsDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.markOpen(name); err != nil {
			return err
		}
	}
	return unwritable(syncDir(l.dir), "its folder can't be synced")
}

func (l *Ledger) names(dir string) ([]string, error) {
	entries, err := os.ReadDir(l.path(dir))
	if err != nil {
		return nil, problem.Wrap(Damaged, err, "the ledger: %s can't be listed", dir)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (l *Ledger) markOpen(request string) error {
	err := l.step("open", "write", func() error {
		f, err := os.OpenFile(l.path(openDir, request), os.O_WRONLY|os.O_CREATE, fileMode)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err == nil {
		err = l.step("open", "sync", func() error { return syncDir(l.path(openDir)) })
	}
	return unwritable(err, "a record can't be opened")
}

// Session is a turn at the ledger: it holds the short lock.
type Session struct {
	l    *Ledger
	lock *os.File
}

// Lock waits for a turn, as long as ctx lasts. Sessions take milliseconds, but
// for an executor that is stopped in one. Errors: Locked, LedgerUnwritable.
func (l *Ledger) Lock(ctx context.Context) (*Session, error) {
	f, err := os.OpenFile(l.path(lockFile), os.O_RDONLY|os.O_CREATE, fileMode)
	if err != nil {
		return nil, unwritable(err, "its lock can't be opened")
	}
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &Session{l: l, lock: f}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, problem.Wrap(Locked, ctx.Err(), "the ledger: another executor holds its lock").
				WithHint("is a process minion-executor stopped?")
		case <-tick.C:
		}
	}
	_ = f.Close()
	return nil, unwritable(err, "its lock can't be taken")
}

// Close ends the turn.
func (s *Session) Close() { _ = s.lock.Close() }

func (s *Session) dir(request string) string { return s.l.path(recordsDir, request) }

// Record reads what is known about a request, nil if nothing is. What it
// returns is on disk for good: a writer that died before it synced its folder
// is made up for here.
func (s *Session) Record(request string) (*Record, error) {
	if !isRequest(request) {
		return nil, problem.New(problem.BadField, "a request isn't a UUID in lower case")
	}
	r, err := readRecord(s.dir(request), request)
	if err != nil && problem.CodeOf(err) != Damaged {
		return nil, err
	}
	if r, err = s.remembered(request, r, err); err != nil || r == nil {
		return nil, err
	}
	if err := syncDir(s.dir(request)); err != nil && !errors.Is(err, unix.EROFS) {
		return nil, problem.Wrap(Damaged, err, "the ledger: a record's folder can't be synced")
	}
	return r, nil
}

// isRequest keeps whatever could be a path out of paths.
func isRequest(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// OpenRecords reads every record that is prepared or unfinished.
func (s *Session) OpenRecords() ([]*Record, error) {
	names, err := s.l.names(openDir)
	if err != nil {
		return nil, err
	}
	running, err := s.l.witnesses()
	if err != nil {
		return nil, err
	}
	for _, name := range running { // the index may be an old one
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var open []*Record
	for _, name := range names {
		r, err := s.Record(name)
		if err != nil {
			return nil, err
		}
		if r == nil || r.State != Prepared && !r.Unfinished() {
			_ = os.Remove(s.l.path(openDir, name))
			continue
		}
		open = append(open, r)
	}
	return open, nil
}

// Records reads all records, oldest first. It is for people.
func (s *Session) Records() ([]*Record, error) {
	names, err := s.l.names(recordsDir)
	if err != nil {
		return nil, err
	}
	var all []*Record
	for _, name := range names {
		r, err := s.Record(name)
		if err != nil {
			return nil, err
		}
		if r != nil {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b *Record) int { return a.PreparedAt.Compare(b.PreparedAt) })
	return all, nil
}

// Preparation is what a prepared record holds.
type Preparation struct {
	Request, Target, Instance, Profile, Digest, Ledger string

	Salt string // of the ticket, from NewTicket
}

// Prepare writes a prepared record under a new ticket, with room reserved for
// what may follow. A prepared record of the same request gets the new ticket;
// every other prepared record is fenced first, so that a ledger has at most
// one live ticket. The caller has checked that nothing is unfinished.
func (s *Session) Prepare(p Preparation, ticket string) error {
	l := s.l
	if !isRequest(p.Request) {
		return problem.New(problem.BadField, "a request isn't a UUID in lower case")
	}
	if err := checkSpace(l.dir); err != nil {
		return err
	}
	open, err := s.OpenRecords()
	if err != nil {
		return err
	}
	var former []string
	salts := []string{p.Salt}
	for _, r := range open {
		if r.State != Prepared {
			continue
		}
		if r.Request == p.Request {
			former, salts = r.former(), r.salts(p.Salt)
			continue
		}
		if err := s.GiveUp(r, problem.NeverStarted); err != nil {
			return err
		}
	}
	run := ""
	if l.runDir != "" {
		if run, err = l.ensureRun(); err != nil {
			return err
		}
	}
	boot, err := l.machine.BootID()
	if err != nil {
		return err
	}
	since, err := l.machine.SinceBoot()
	if err != nil {
		return err
	}
	// The mark comes first: a record without one would be overlooked.
	if err := l.markOpen(p.Request); err != nil {
		return err
	}
	dir := s.dir(p.Request)
	err = l.step("record", "write", func() error {
		_, err := ensureDir(dir)
		return err
	})
	if err == nil {
		err = l.step("record", "sync", func() error { return syncDir(l.path(recordsDir)) })
	}
	if err != nil {
		return unwritable(err, "a record can't be made")
	}
	if err := l.reserve(dir); err != nil {
		return err
	}
	return l.replace(dir, preparedFile, "prepared", preparedFact{
		Version: versionOf(Prepared), Request: p.Request, Target: p.Target, Instance: p.Instance, Profile: p.Profile,
		Digest: p.Digest, Ledger: p.Ledger, TicketSum: ticketSum(ticket), Former: former, Salts: salts,
		Boot: boot, Run: run, Expires: since + TicketLife, At: l.machine.Now().UTC(),
	})
}

// TicketLives says whether a prepared record may still start: it was prepared
// in this boot, less than TicketLife ago, and what witnesses there may be of an
// earlier start are still there.
func (s *Session) TicketLives(r *Record) (bool, error) {
	if r.State != Prepared {
		return false, nil
	}
	boot, err := s.l.machine.BootID()
	if err != nil {
		return false, err
	}
	since, err := s.l.machine.SinceBoot()
	if err != nil {
		return false, err
	}
	if boot != r.prepared.Boot || since >= r.prepared.Expires {
		return false, nil
	}
	return s.unseen(r)
}

// Start decides that a prepared record is started. It returns errTaken where
// it was decided already.
func (s *Session) Start(r *Record) error {
	return s.decide(r, decisionFile, "started", fact{Kind: Started})
}

// Fence decides that a prepared record will never start.
func (s *Session) Fence(r *Record, code problem.Code) error {
	return s.decide(r, decisionFile, "fenced", fact{Kind: Fenced, Code: code})
}

// GiveUp decides that a prepared record will never start: it is fenced with a
// code where that it never did is proved, and lapsed otherwise.
func (s *Session) GiveUp(r *Record, code problem.Code) error {
	proved, err := s.unseen(r)
	if err != nil {
		return err
	}
	if proved {
		return s.Fence(r, code)
	}
	return s.decide(r, decisionFile, "lapsed", fact{Kind: Lapsed})
}

// Begin says that from now on the effect of a started record may happen.
// errTaken: it is decided already, was handed over before in this boot, or isn't
// the one that was started any more.
func (s *Session) Begin(r *Record) error {
	if err := s.decide(r, effectFile, "begun", fact{Kind: Begun}); err != nil {
		return err
	}
	return s.testify(r)
}

// Refuse says that a started record was given up before its effect.
func (s *Session) Refuse(r *Record, code problem.Code) error {
	return s.decide(r, effectFile, "refused", fact{Kind: Refused, Code: code})
}

// NeverBegan says that a started record's job was gone before its effect. The
// caller holds a probe of the free lease. It does nothing, and the record stays
// started, where that isn't proved.
func (s *Session) NeverBegan(r *Record, free *Lease) error {
	if free == nil || free.Held || free.file == nil {
		return problem.New(problem.Internal, "never_began needs the free lease")
	}
	if proved, err := s.unseen(r); err != nil || !proved {
		return err
	}
	return s.decide(r, effectFile, "never_began", fact{Kind: NeverBegan, Code: problem.NeverBegan})
}

// Finish writes the outcome of a begun record. Code "" is a success. A ledger
// that was put back in the meantime gets its facts again first.
func (s *Session) Finish(r *Record, code problem.Code, counts message.Counts) error {
	return s.decide(r, outcomeFile, "finished", fact{Kind: Finished, Code: code, Counts: &counts})
}

// Settle writes what an operator says that came of an unfinished record. The
// caller holds a probe of the free lease and has found no survivor. Where the
// record's own executor is faster, or somebody settled it before: errTaken.
func (s *Session) Settle(r *Record, outcome message.Outcome, free *Lease) error {
	if free == nil || free.Held || free.file == nil || !outcome.Valid() || !r.Unfinished() {
		return problem.New(problem.Internal, "a settlement needs an outcome, an unfinished record and the free lease")
	}
	return s.decide(r, outcomeFile, "settled", fact{Kind: Settled, Outcome: outcome})
}

// decide writes a fact where it fits what is on disk now, which may be more, or
// something else, than when r was read. If it doesn't: errTaken. What excludes
// two facts is their name, this keeps one from being written beside a record
// that it doesn't belong to.
func (s *Session) decide(r *Record, file, name string, f fact) error {
	now, err := s.Record(r.Request)
	if err != nil {
		return err
	}
	if now == nil || !slices.Contains(follows[f.Kind], now.State) || now.prepared.TicketSum != r.prepared.TicketSum {
		return errTaken
	}
	f.Version, f.At = versionOf(f.Kind), s.l.machine.Now().UTC()
	dir := s.dir(r.Request)
	if err := s.l.create(dir, file, name, f); err != nil {
		return err
	}
	r.State, r.Code, r.Counts, r.Outcome = f.Kind, f.Code, f.Counts, f.Outcome
	if file == outcomeFile {
		s.l.conclude(r, f)
	}
	if !r.Unfinished() {
		_ = os.Remove(s.l.path(openDir, r.Request))
		sweep(dir)
	}
	return nil
}
