package minion_test

import (
	"testing"

	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
)

// What one executor process costs, from its launch to its end.
func BenchmarkExecutor(b *testing.B) {
	k := miniontest.New(b, b.TempDir(), "-ldflags", "-s -w")
	k.Identify()
	canonical, _ := k.Document(threeStates)
	b.Run("prepare", func(b *testing.B) {
		request := miniontest.NewUUID()
		for b.Loop() {
			if a := k.Prepare(request, canonical); a.Result != message.Prepared {
				b.Fatal(a)
			}
		}
	})
	b.Run("evidence", func(b *testing.B) {
		request := miniontest.NewUUID()
		for b.Loop() {
			k.Evidence(request, false)
		}
	})
	b.Run("prepare+start", func(b *testing.B) {
		for b.Loop() {
			request := miniontest.NewUUID()
			a := k.Prepare(request, canonical)
			a = k.Start(request, a.Ticket, canonical, succeed(canonical))
			if a.Result != message.Finished {
				b.Fatal(a)
			}
		}
	})
}
