package ledger_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
)

// Issue 5, retention: a prepare costs the same with 10,000 records as with
// none, since it reads the index of open ones and not the records.
func BenchmarkPrepare(b *testing.B) {
	for _, records := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("%d records", records), func(b *testing.B) {
			dir, m := stateDir(b), newMachine()
			fillWith(b, dir, m, records)
			n := records
			for b.Loop() {
				n++
				l, err := ledger.Open(ledger.Config{Dir: dir, RunDir: runDir(dir), Machine: m.machine(), Random: zeros{}})
				must(b, err)
				s, err := l.Lock(b.Context())
				must(b, err)
				must(b, s.Prepare(preparation(uuid(n)), "t"))
				s.Close()
			}
		})
	}
}

// fillWith makes finished records, and their witnesses, without the syncs.
func fillWith(tb testing.TB, dir string, m *fakeMachine, records int) {
	tb.Helper()
	_, s := at(tb, dir, m, nil)
	must(tb, s.Prepare(preparation(uuid(0)), "t"))
	r := record(tb, s, uuid(0))
	must(tb, s.Start(r))
	must(tb, s.Begin(r))
	must(tb, s.Finish(r, "", message.Counts{Declared: 1, Passed: 1}))
	s.Close()
	from := dir + "/records/" + uuid(0)
	prepared, err := os.ReadFile(from + "/prepared.json")
	must(tb, err)
	for n := 1; n <= records; n++ {
		to := dir + "/records/" + uuid(n)
		must(tb, os.Mkdir(to, 0o700))
		for _, name := range []string{"decision.json", "effect.json", "outcome.json"} {
			must(tb, os.Link(from+"/"+name, to+"/"+name))
		}
		own := append([]byte(nil), prepared...)
		copy(own[len(`{"version":1,"request":"`):], uuid(n))
		must(tb, os.WriteFile(to+"/prepared.json", own, 0o600))
		must(tb, os.Link(runDir(dir)+"/done/"+uuid(0), runDir(dir)+"/done/"+uuid(n)))
	}
}

// zeros is a source of randomness that costs nothing; each draw is another one.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return copy(p, fmt.Sprintf("%016x", time.Now().UnixNano())[8:]), nil
}

// Protocol, retention: identities stay for ever and results for at least 400 days.
// Nothing of a ledger removes a record, whatever is prepared after it and
// however old it is.
func TestRecordsStay(t *testing.T) {
	dir, m := stateDir(t), newMachine()
	fillWith(t, dir, m, 300)
	for boot := range 3 {
		m.boot = uuid(900 + boot)
		_, s := at(t, dir, m, nil)
		for n := range 5 {
			must(t, s.Prepare(preparation(uuid(400+5*boot+n)), "t"))
		}
		s.Close()
	}
	_, s := at(t, dir, m, nil)
	defer s.Close()
	for n := range 301 {
		if r := record(t, s, uuid(n)); r.State != ledger.Finished || r.Counts == nil {
			t.Fatalf("%d: %+v", n, r)
		}
	}
	all, err := s.Records()
	if err != nil || len(all) != 301+15 {
		t.Errorf("%d records, %v", len(all), err)
	}
	open, err := s.OpenRecords()
	if err != nil || len(open) != 1 {
		t.Errorf("%d are open, %v", len(open), err)
	}
}
