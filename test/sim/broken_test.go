package sim_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/sim"
)

var fair = flag.Int("fair", 20, "how many schedules of each defect's plan must hold without the defect")

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
	// past makes an older database come back while runs are under way or broken.
	past := func(p *sim.Plan) {
		p.DatabaseBack, p.LedgerLost, p.LedgerBack, p.Clones, p.DatabaseLost = 2, 0, 0, 0, 0
		p.SaltKilled, p.EffectLong, p.Requests, p.Targets, p.Length = .5, .9, 5, 1, 15*time.Minute
		p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.ReturnLost, p.JobTwice = 0, 0, 0, 0, 0, 0, 0
	}
	unsettled := func(p *sim.Plan) {
		p.LedgerLost, p.LedgerBack, p.Clones, p.DatabaseBack, p.DatabaseLost = 0, 0, 0, 0, 0
		p.SaltKilled, p.EffectLong, p.Requests, p.Targets, p.Length, p.Operators = .8, .5, 5, 1, 15*time.Minute, 6
	}
	return []defect{
		{sim.PublishBeforeSync, nil, 20, "durable first"},
		{sim.PublishUnknownClaim, func(p *sim.Plan) { p.StoreFails, p.StoreToldFalse = .3, .3 }, 200, "durable first"},
		{sim.RetryOnTimeout, func(p *sim.Plan) { p.ReplyLost = .5 }, 200, "one start a receipt"},
		{sim.RepublishOnRestart, func(p *sim.Plan) { p.ReplyLost, p.Kills = .5, 4 }, 300, "one start a receipt"},
		{sim.TrustTheBus, func(p *sim.Plan) { p.Forged = .7 }, 400, ""},
		{sim.AbsentIsUnseen, func(p *sim.Plan) {
			p.LedgerBack, p.LedgerLost, p.Clones, p.DatabaseBack, p.DatabaseLost = 3, 0, 0, 0, 0
			p.EffectLong, p.ReturnLost, p.Length = .8, .4, 15*time.Minute
		}, 1000, "no false failed"},
		{sim.InterruptedIsFailed, func(p *sim.Plan) { p.SaltKilled = .5 }, 200, "no false failed"},
		{sim.FailedAtDeadline, func(p *sim.Plan) { p.SaltKilled = .5 }, 200, "no false failed"},
		{sim.QuarantineForgotten, func(p *sim.Plan) {
			// The ledger guards too, so it takes the loss of that one as well.
			p.LedgerLost, p.LedgerBack, p.Clones, p.DatabaseBack, p.DatabaseLost = 1, 0, 0, 0, 0
			p.SaltKilled, p.Kills, p.Requests, p.Targets, p.Length = .8, 6, 4, 1, 15*time.Minute
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.ReturnLost = 0, 0, 0, 0, 0, 0
		}, 4000, "quarantine"},
		{sim.NotExclusive, func(p *sim.Plan) { p.Stalled, p.JobLate, p.ReturnLost = .1, 0, 0 }, 2000, ""},
		{sim.TicketNotBoundToBoot, func(p *sim.Plan) { queued(p); p.Reboots = 3 }, 600, "tickets die"},
		{sim.TicketLivesForEver, func(p *sim.Plan) {
			queued(p)
			p.JobLate, p.Requests, p.Reboots = .6, 4, 0
		}, 600, "tickets die"},
		{sim.AnyTicketStarts, func(p *sim.Plan) {
			p.Clones, p.LedgerLost, p.LedgerBack, p.DatabaseBack, p.DatabaseLost = 1, 0, 0, 0, 0
		}, 300, "at most once"},
		{sim.AnyTicketFences, func(p *sim.Plan) {
			p.Clones, p.LedgerLost, p.LedgerBack, p.DatabaseBack, p.DatabaseLost = 2, 0, 0, 0, 0
			p.EffectLong, p.ReturnLost, p.SaltKilled, p.Requests, p.Targets = 1, .4, 0, 5, 1
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.Length = 0, 0, 0, 0, 0, 15*time.Minute
		}, 1500, "no false failed"},
		{sim.UnfinishedIgnored, func(p *sim.Plan) {
			p.DatabaseBack, p.LedgerLost, p.LedgerBack, p.Clones, p.DatabaseLost = 2, 0, 0, 0, 0
			p.SaltKilled, p.EffectLong, p.Requests, p.Targets, p.Length = .7, .9, 4, 1, 15*time.Minute
			p.RequestLost, p.RequestLate, p.JobLost, p.JobLate, p.JobQueued, p.ReturnLost = 0, 0, 0, 0, 0, 0
		}, 3000, "one at a time"},
		{sim.EffectBeforeBegun, func(p *sim.Plan) { p.ExecutorKilled = .1 }, 400, "no false failed"},
		{sim.ReplayRuns, func(p *sim.Plan) { p.JobTwice = .6 }, 500, "at most once"},

		{sim.SettledWhileRunning, func(p *sim.Plan) { past(p); p.Operators = 8 }, 2000, "settled while it runs"},
		{sim.SettlesWhatRuns, func(p *sim.Plan) {
			unsettled(p) // the twin says that it was interrupted, and both are told
			p.Clones, p.EffectLong, p.SaltKilled, p.Operators = 3, 1, 0, 12
		}, 1000, "settled while it runs"},
		{sim.SettledIsReused, func(p *sim.Plan) { unsettled(p); p.SameSource = .9 }, 2000, "settled isn't proved"},
		{sim.DebtForgotten, func(p *sim.Plan) { unsettled(p); p.JobLost = .5 }, 500, "debts are paid"},
		{sim.DebtWrittenOff, func(p *sim.Plan) { unsettled(p); p.JobLost = .5 }, 500, ""},
		{sim.WaitingStarts, func(p *sim.Plan) { past(p); p.Requests, p.Length = 10, 2*time.Minute }, 1000, "what waited stays"},
		{sim.AnyAbsentIsProof, func(p *sim.Plan) {
			past(p)
			p.LedgerLost, p.EffectLong, p.SaltKilled, p.Length = 2, 0, 0, 4*time.Minute
		}, 2000, "no false failed"},
		{sim.ForgetsAndIsBelieved, func(p *sim.Plan) {
			past(p)
			p.LedgerBack, p.EffectLong, p.SaltKilled, p.Length = 3, 0, 0, 4*time.Minute
		}, 2000, "no false failed"},
		{sim.RecordForgotten, past, 1000, "quarantines come back"},
		{sim.RecordIsNoObstacle, func(p *sim.Plan) { past(p); p.SameSource = .7 }, 1000, "quarantine"},
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

// What catches a broken copy is that it is broken: with its plan alone nothing
// is violated.
func TestPlansAreFair(t *testing.T) {
	if *seed != 0 {
		t.Skip("-seed")
	}
	for _, d := range defects() {
		if d.plan == nil {
			continue
		}
		t.Run(string(d.broken), func(t *testing.T) {
			t.Parallel()
			for n := range uint64(*fair) {
				o := sim.Options{Seed: *first + 2_000_000 + n, Plan: d.plan, Strict: *strict}
				if r := run(t, o); r.Violation != "" {
					report(t, o, r)
				}
			}
		})
	}
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
