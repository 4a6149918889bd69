package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/oduflow/oduflow-salt/internal/fault"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// holdLease holds the lease with an exclusive flock, as a Salt job does.
func holdLease(t testing.TB, l *ledger.Ledger, content string) *os.File {
	t.Helper()
	lease, err := l.ProbeLease() // makes the file
	must(t, err)
	lease.Release()
	f, err := os.OpenFile(l.LeasePath(), os.O_RDWR, 0)
	must(t, err)
	must(t, f.Truncate(0))
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	_, err = f.WriteString(content)
	must(t, err)
	return f
}

// world is the model: what a ledger has to say, and what really happened.
type world struct {
	state  map[string]ledger.State
	ticket map[string]string
	starts map[string]int // how often Start said that it started
	begins map[string]int
}

// Invariants 1 and 2, with steps that fail before and after they are taken:
// whatever is written, told as failed, rebooted or repeated, a request starts
// and begins at most once, one ticket lives, a decided record never goes back,
// and what is unfinished is never overlooked.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(t.TempDir(), "state")
		defer func() { _, _ = os.RemoveAll(dir), os.RemoveAll(runDir(dir)) }()
		m := newMachine()
		w := world{map[string]ledger.State{}, map[string]string{}, map[string]int{}, map[string]int{}}
		requests := []string{uuid(1), uuid(2), uuid(3)}
		boots, tickets := 0, 0

		act := func(name string, do func(l *ledger.Ledger, s *ledger.Session, request string) error) func(*rapid.T) {
			return func(rt *rapid.T) {
				request := rapid.SampledFrom(requests).Draw(rt, "request")
				failAt := rapid.IntRange(0, 12).Draw(rt, "fails at") // mostly beyond the last step
				phase := rapid.SampledFrom([]ledger.Phase{ledger.Before, ledger.After}).Draw(rt, "phase")
				n := 0
				l, s := at(t, dir, m, func(_ fault.Step, p ledger.Phase) error {
					if p == phase {
						if n++; n == failAt {
							return errors.New("a planned fault")
						}
					}
					return nil
				})
				err := do(l, s, request)
				s.Close()
				w.check(rt, t, dir, m, name, request, err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"prepare": act("prepare", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r != nil && r.State != ledger.Prepared {
					return nil
				}
				open, err := s.OpenRecords()
				must(t, err)
				for _, o := range open {
					if o.Unfinished() {
						return nil
					}
				}
				tickets++
				ticket := uuid(1000 + tickets)
				err = s.Prepare(preparation(request), ticket)
				if err == nil {
					w.ticket[request] = ticket
				}
				return err
			}),
			"start": act("start", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || !r.HasTicket(w.ticket[request]) {
					return nil
				}
				if lives, err := s.TicketLives(r); err != nil || !lives {
					return err
				}
				if err = s.Start(r); err == nil {
					w.starts[request]++
				}
				return err
			}),
			"start again": act("start again", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State == ledger.Prepared {
					return nil
				}
				if err := s.Start(r); !ledger.IsTaken(err) && err == nil {
					w.starts[request]++
				}
				return nil
			}),
			"fence": act("fence", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil {
					return nil
				}
				return s.Fence(r, problem.NeverStarted)
			}),
			"begin": act("begin", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State != ledger.Started && !r.Unfinished() {
					return nil
				}
				if err = s.Begin(r); err == nil {
					w.begins[request]++
				}
				return err
			}),
			"refuse": act("refuse", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State != ledger.Started {
					return nil
				}
				return s.Refuse(r, problem.StartRefusedPluginMismatch)
			}),
			"never began": act("never began", func(l *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State != ledger.Started {
					return nil
				}
				lease, err := l.ProbeLease()
				must(t, err)
				defer lease.Release()
				return s.NeverBegan(r, lease)
			}),
			"finish": act("finish", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State != ledger.Begun {
					return nil
				}
				return s.Finish(r, "", message.Counts{Declared: 1, Passed: 1})
			}),
			"settle": act("settle", func(l *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || !r.Unfinished() {
					return nil
				}
				lease, err := l.ProbeLease()
				must(t, err)
				defer lease.Release()
				return s.Settle(r, message.OutcomeSucceeded, lease)
			}),
			"give up": act("give up", func(_ *ledger.Ledger, s *ledger.Session, request string) error {
				r, err := s.Record(request)
				must(t, err)
				if r == nil || r.State != ledger.Prepared {
					return nil
				}
				return s.GiveUp(r, problem.NeverStarted)
			}),
			"reboot": func(*rapid.T) { boots++; m.boot, m.since = uuid(boots), time.Minute },
			"time":   func(rt *rapid.T) { m.since += time.Duration(rapid.IntRange(0, 200).Draw(rt, "s")) * time.Second },
		})
	})
}

// after says which states may follow a state, itself included.
var after = map[ledger.State][]ledger.State{
	"":                {"", ledger.Prepared, ledger.Fenced},
	ledger.Prepared:   {ledger.Prepared, ledger.Started, ledger.Fenced, ledger.Lapsed},
	ledger.Started:    {ledger.Started, ledger.Begun, ledger.Refused, ledger.NeverBegan, ledger.Settled},
	ledger.Begun:      {ledger.Begun, ledger.Finished, ledger.Settled},
	ledger.Fenced:     {ledger.Fenced},
	ledger.Lapsed:     {ledger.Lapsed},
	ledger.Settled:    {ledger.Settled},
	ledger.Refused:    {ledger.Refused},
	ledger.NeverBegan: {ledger.NeverBegan},
	ledger.Finished:   {ledger.Finished},
}

func (w world) check(rt *rapid.T, t *testing.T, dir string, m *fakeMachine, name, request string, failed error) {
	_, s := at(t, dir, m, nil)
	defer s.Close()
	open, err := s.OpenRecords()
	must(t, err)
	isOpen := map[string]bool{}
	for _, r := range open {
		isOpen[r.Request] = true
	}
	live := 0
	for _, request := range []string{uuid(1), uuid(2), uuid(3)} {
		r, err := s.Record(request)
		must(t, err)
		now := ledger.State("")
		if r != nil {
			now = r.State
			lives, err := s.TicketLives(r)
			must(t, err)
			if lives {
				live++
			}
			if (r.State == ledger.Prepared || r.Unfinished()) != isOpen[request] {
				rt.Fatalf("%s: %s is %s, and open: %v", name, request, r.State, isOpen[request])
			}
		}
		ok := false
		for _, next := range after[w.state[request]] {
			ok = ok || next == now
		}
		if !ok {
			rt.Fatalf("%s: %s went from %q to %q", name, request, w.state[request], now)
		}
		w.state[request] = now
		if w.starts[request] > 1 || w.begins[request] > 1 {
			rt.Fatalf("%s: %s started %d times, began %d times", name, request, w.starts[request], w.begins[request])
		}
		if w.begins[request] == 1 && now != ledger.Begun && now != ledger.Finished && now != ledger.Settled {
			rt.Fatalf("%s: %s began, and is %s", name, request, now)
		}
	}
	if live > 1 {
		rt.Fatalf("%s: %d live tickets", name, live)
	}
	_ = failed
}
