package minion_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// Issue 5, SIGSTOP: an executor that is stopped in its turn keeps all others
// from the ledger. What they answer is true and comes long before masterd's
// 20 s are over, nothing starts, and a run that ends meanwhile loses nothing.
func TestLedgerStaysLocked(t *testing.T) {
	k := newKit(t)
	ready, over := miniontest.NewUUID(), miniontest.NewUUID()
	canonical, _ := k.Document(threeStates)
	unheard := k.AskStart(ready, k.Prepare(ready, canonical).Ticket, canonical)
	running := k.AskStart(over, k.Prepare(over, canonical).Ticket, canonical)

	locked := make(chan *os.File, 1)
	ended := make(chan miniontest.Said, 1)
	go func() {
		said, err := k.TrySend(message.Start, running.Text, miniontest.Shim{Run: func([]byte) any {
			f, err := os.Open(k.Ledger("lock"))
			if err == nil {
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			}
			if err != nil {
				t.Error(err)
			}
			locked <- f
			return miniontest.Results(canonical, "true")
		}})
		if err != nil {
			t.Error(err)
		}
		ended <- said
	}()
	lock := <-locked

	began := time.Now()
	expect(t, k.Prepare(miniontest.NewUUID(), canonical), message.Refused, problem.TargetBusy)
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("a prepare is answered after %s", took)
	}
	expect(t, k.Settle(over, canonical, message.OutcomeFailed), message.Refused, problem.TargetBusy)
	for _, q := range []miniontest.Question{k.Seal(miniontest.Ask{Kind: message.Evidence, Request: over}), unheard} {
		if said := k.Send(q.Message.Kind, q.Text, mustNotRun(t)); said.Text != "oduflow: rejected ledger_locked" {
			t.Errorf("%s: said %q", q.Message.Kind, said.Text)
		}
	}
	_ = lock.Close()
	// Four turns were waited for in vain, as long as an executor waits.
	expect(t, k.Read(running, (<-ended).Text), message.Finished, "")
	expect(t, k.Evidence(over, true), message.Finished, "")
}
