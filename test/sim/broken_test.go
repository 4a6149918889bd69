package sim_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/sim"
)

var everyDefect = flag.Int("per-defect", 1, "how often each defect must be caught, from different seeds")

// defect is a broken copy of the machine. plan makes the trouble that it needs
// likelier; within is how many schedules may pass before it is caught.
type defect struct {
	broken sim.Broken
	plan   func(*sim.Plan)
	within int
	says   string // the invariant that catches it, among others
}

func defects() []defect {
	queued := func(p *sim.Plan) { p.JobQueued, p.JobLost, p.RequestLost, p.EffectLong = .5, 0, 0, .1 }
	return []defect{
		{sim.PublishBeforeSync, nil, 20, "durable first"},
		{sim.PublishUnknownClaim, func(p *sim.Plan) { p.StoreFails, p.StoreToldFalse = .3, .3 }, 200, "durable first"},
		{sim.RetryOnTimeout, func(p *sim.Plan) { p.ReplyLost = .5 }, 200, "one start a receipt"},
		{sim.RepublishOnRestart, func(p *sim.Plan) { p.ReplyLost, p.Kills = .5, 4 }, 300, "one start a receipt"},
		{sim.TrustTheBus, func(p *sim.Plan) { p.Forged = .7 }, 400, ""},
		{sim.AbsentIsUnseen, func(p *sim.Plan) {
			p.LedgerBack, p.LedgerLost, p.Clones, p.DatabaseBack = 3, 0, 0, 0
			p.EffectLong, p.ReturnLost, p.Length = .8, .4, 15*time.Minute
		}, 1000, "no false failed"},
		{sim.InterruptedIsFailed, func(p *sim.Plan) { p.SaltKilled = .5 }, 200, "no false failed"},
		{sim.FailedAtDeadline, func(p *sim.Plan) { p.SaltKilled = .5 }, 200, "no false failed"},
		{sim.QuarantineForgotten, func(p *sim.Plan) {
			// The ledger guards too, so it takes the loss of that one as well.
			p.LedgerLost, p.LedgerBack, p.Clones, p.DatabaseBack = 1, 0, 0, 0
			p.SaltKilled, p.Kills, p.Requests, p.Targets, p.Length = .8, 6, 4, 1, 15*time.Minute
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.ReturnLost = 0, 0, 0, 0, 0, 0
		}, 4000, "quarantine"},
		{sim.NotExclusive, func(p *sim.Plan) { p.Stalled, p.JobLate, p.ReturnLost = .1, 0, 0 }, 2000, ""},
		{sim.TicketNotBoundToBoot, func(p *sim.Plan) { queued(p); p.Reboots = 3 }, 600, "tickets die"},
		{sim.TicketLivesForEver, queued, 600, "tickets die"},
		{sim.AnyTicketStarts, func(p *sim.Plan) { p.Clones, p.LedgerLost, p.LedgerBack, p.DatabaseBack = 1, 0, 0, 0 }, 300, "at most once"},
		{sim.AnyTicketFences, func(p *sim.Plan) {
			p.Clones, p.LedgerLost, p.LedgerBack, p.DatabaseBack, p.EffectLong = 1, 0, 0, 0, .8
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.Length = 0, 0, 0, 0, 0, 15*time.Minute
		}, 1500, "no false failed"},
		{sim.UnfinishedIgnored, func(p *sim.Plan) {
			p.DatabaseBack, p.LedgerLost, p.LedgerBack, p.Clones = 2, 0, 0, 0
			p.SaltKilled, p.EffectLong, p.Requests, p.Targets, p.Length = .7, .9, 4, 1, 15*time.Minute
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.ReturnLost = 0, 0, 0, 0, 0, 0
		}, 3000, "one at a time"},
		{sim.EffectBeforeBegun, func(p *sim.Plan) { p.ExecutorKilled = .1 }, 400, "no false failed"},
		{sim.ReplayRuns, func(p *sim.Plan) { p.JobTwice = .6 }, 500, "at most once"},
	}
}

func defectOf(b sim.Broken) *defect {
	for _, d := range defects() {
		if d.broken == b {
			return &d
		}
	}
	return nil
}

// Each broken copy of the machine is caught, every time: from wherever the
// seeds start, within the number of schedules that its line names.
func TestDefectsAreCaught(t *testing.T) {
	if *seed != 0 {
		t.Skip("-seed")
	}
	for _, d := range defects() {
		t.Run(string(d.broken), func(t *testing.T) {
			t.Parallel()
			most := 0
			for round := range *everyDefect {
				from := uint64(1_000_000 * (round + 1))
				for n := 1; ; n++ {
					if n > d.within {
						t.Fatalf("not caught by the %d schedules after seed %d", d.within, from)
					}
					r := run(t, sim.Options{Seed: from + uint64(n), Broken: d.broken, Plan: d.plan})
					if r.Violation == "" || !strings.HasPrefix(r.Violation, d.says) {
						continue
					}
					if most = max(most, n); round == 0 {
						t.Logf("caught by schedule %d: %s", n, r.Violation)
					}
					break
				}
			}
			t.Logf("%d times, at most %d of %d schedules", *everyDefect, most, d.within)
		})
	}
}
