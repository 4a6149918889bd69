package start

import (
	"hash/fnv"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Bounds of the time between two polls.
const (
	pollLeast = 2 * time.Second
	pollMost  = 60 * time.Second
	pollShare = 20 // a twentieth of the time since acceptance
)

// PollAfter says when a caller should ask again; 0 once nothing changes any
// more. It grows with the age of the request, so that a short run is seen soon
// and 250 polls cover waiting and execution together (A18). Each request has
// its own small extra, so that callers of one moment don't stay in step.
func PollAfter(r receipt.Receipt, request string, now time.Time) time.Duration {
	if r.State.Terminal() {
		return 0
	}
	wait := receipt.LookInterval
	if r.State != receipt.Uncertain {
		// Where the clock was set back since, the step counts as age.
		wait = min(max(now.Sub(r.AcceptedAt).Abs()/pollShare, pollLeast), pollMost)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(request))
	return wait + wait/10*time.Duration(h.Sum32()%100)/100
}
