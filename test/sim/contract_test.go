package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// memoryDir gives a folder that needs no disk, where there is one.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "oduflow-sim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The model of the ledger says what internal/ledger says, whatever is done to
// both: the same records, the same exclusions, the same lives of tickets.
func TestModelIsLikeTheLedger(t *testing.T) {
	dir := memoryDir(t)
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := &contract{t: t, r: r, boot: 1, tickets: [2]map[string][]string{{}, {}}, nonces: map[string]string{}}
		machine := ledger.Machine{
			BootID:    func() (string, error) { return fmt.Sprint(c.boot), nil },
			SinceBoot: func() (time.Duration, error) { return c.since, nil },
			MachineID: func() (string, error) { return "machine", nil },
			Now:       func() time.Time { return time.Unix(1, 0) },
		}
		real := &realLedger{dir: fmt.Sprintf("%s/%d", dir, seed), machine: machine}
		c.both = [2]ledgerStore{newModel(machine, newLedgerID("id"), ""), real}
		for n := range 40 {
			c.step = fmt.Sprintf("seed %d step %d", seed, n)
			c.act()
			if t.Failed() {
				return
			}
		}
		real.Lose()
		real.Reboot()
	}
}

type contract struct {
	t       *testing.T
	r       *rand.Rand
	both    [2]ledgerStore
	copies  [2]ledgerCopy
	boot    int
	since   time.Duration
	tickets [2]map[string][]string // that each has given, the newest last
	nonces  map[string]string      // of the last question
	damaged bool
	step    string
}

var contractStates = []ledger.State{
	ledger.Started, ledger.Started, ledger.Fenced, ledger.Begun, ledger.Begun, ledger.Refused, ledger.NeverBegan, ledger.Finished, ledger.Finished,
}

// act does one thing to both, and compares what they say.
func (c *contract) act() {
	request := fmt.Sprintf("00000000-0000-4000-8000-%012d", c.r.IntN(4))
	what := c.r.IntN(24)
	to := contractStates[c.r.IntN(len(contractStates))]
	nonce := hexOf(drawBytes(c.r, message.NonceSize))
	if c.r.IntN(4) == 0 && c.nonces[request] != "" {
		nonce = c.nonces[request] // delivered twice
	}
	c.since += time.Duration(c.r.IntN(20)) * time.Second
	switch what {
	case 0:
		c.boot++
		c.since = 0
		for _, l := range c.both {
			l.Reboot()
		}
	case 1:
		for i, l := range c.both {
			c.copies[i] = l.Copy()
		}
	case 2:
		if c.copies[0] != nil {
			for i, l := range c.both {
				l.Restore(c.copies[i])
			}
			c.damaged = false
		}
	case 3:
		if c.r.IntN(5) == 0 {
			for _, l := range c.both {
				l.Lose()
			}
		}
	}
	var said [2][]any
	for i, l := range c.both {
		before := l.Generation()
		s, err := l.Lock(context.Background())
		if err != nil {
			c.t.Fatalf("%s: %v", c.step, err)
		}
		said[i] = c.actOn(s, i, what, request, to, nonce)
		s.Close()
		said[i] = append(said[i], l.Generation() > before)
	}
	if what >= 6 && what < 11 {
		c.nonces[request] = nonce
	}
	for i := range said[0] {
		if !reflect.DeepEqual(said[0][i], said[1][i]) {
			c.t.Errorf("%s (%d, %s): the model says\n%+v\nthe ledger says\n%+v", c.step, what, to, said[0][i], said[1][i])
		}
	}
}

// prepare gives the ticket that a question gets, and says whether it is a new
// one.
func (c *contract) prepare(s ledgerSession, side int, request, nonce string, r *record) []any {
	if r != nil {
		if ticket := s.TicketFor(r, nonce); ticket != "" {
			return []any{"again", slices.Index(c.tickets[side][request], ticket)}
		}
	}
	salt, ticket, err := s.NewTicket(nonce, drawBytes(c.r, message.TicketSize))
	if err != nil {
		return []any{class(err)}
	}
	err = s.Prepare(ledger.Preparation{Request: request, Instance: "instance", Digest: "digest", Ledger: "ledger", Salt: salt}, ticket)
	if err == nil {
		c.tickets[side][request] = append(c.tickets[side][request], ticket)
	}
	return []any{class(err)}
}

func (c *contract) actOn(s ledgerSession, side, what int, request string, to ledger.State, nonce string) (said []any) {
	r, err := s.Record(request)
	said = append(said, class(err))
	switch {
	case what == 5:
		_, err := s.Adopt("instance")
		said = append(said, class(err))
	case what >= 6 && what < 11:
		if err == nil && (r == nil || r.State == ledger.Prepared) && !c.damaged {
			said = append(said, c.prepare(s, side, request, nonce, r)...)
		}
	case what >= 20 && r != nil && err == nil:
		outcome := message.OutcomeSucceeded
		if what > 21 {
			outcome = message.OutcomeFailed
		}
		said = append(said, class(s.Settle(r, outcome)))
	case what >= 11 && r != nil && err == nil:
		said = append(said, class(s.Decide(r, to, problem.StateFailed, &message.Counts{Declared: 1, Failed: 1})))
	}
	id, err := s.Identity()
	said = append(said, class(err), id != nil && id.Instance == "instance" && id.Machine == "machine")
	for n := range 4 {
		other := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		known, err := s.Record(other)
		said = append(said, class(err))
		if class(err) == string(ledger.Damaged) {
			c.damaged = true
		}
		if err != nil || known == nil {
			said = append(said, known == nil)
			continue
		}
		lives, err := s.TicketLives(known)
		said = append(said, lives, class(err), s.HasTicket(known, "x"), s.Knew(known, "x"))
		for _, ticket := range c.tickets[side][other] {
			said = append(said, s.HasTicket(known, ticket), s.Knew(known, ticket))
		}
		plain := *known
		plain.real, plain.ticket = nil, ""
		switch plain.State { // their own code and counts are theirs
		case ledger.Started, ledger.Begun, ledger.NeverBegan:
			plain.Code, plain.Counts = "", nil
		case ledger.Fenced, ledger.Refused, ledger.Lapsed:
			plain.Counts = nil
		case ledger.Prepared, ledger.Finished, ledger.Settled:
		}
		said = append(said, plain.Counts)
		plain.Counts = nil
		said = append(said, plain)
	}
	if !c.damaged {
		open, err := s.OpenRecords()
		names := map[string]ledger.State{}
		for _, r := range open {
			names[r.Request] = r.State
		}
		said = append(said, class(err), names)
	}
	return said
}

func class(err error) string {
	switch {
	case err == nil:
		return ""
	case isTaken(err):
		return "taken"
	default:
		return string(problem.CodeOf(err))
	}
}
