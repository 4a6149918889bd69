package sim

import (
	"math/rand/v2"
	"time"
)

// Plan says what may go wrong in a schedule, and how likely it is each time
// that it may. It is drawn from the seed.
type Plan struct {
	Length   time.Duration // until everything heals
	Requests int
	Targets  int

	// Between masterd and salt-master.
	RequestLost  float64 // a publish never arrives
	RequestLate  float64 // it arrives after minutes
	ReplyLost    float64 // the master's answer doesn't
	NothingSent  float64 // the master says that it sent nothing, and it didn't
	NoConnection float64

	// Between salt-master and minions.
	JobLost   float64
	JobLate   float64 // up to minutes
	JobQueued float64 // on the minion's disk: run later, perhaps under another JID
	JobTwice  float64 // run once more, under another JID

	// Back again.
	ReturnLost    float64
	ReturnLate    float64
	ReturnTwice   float64
	ReturnGarbled float64
	Forged        float64 // a return that the minion didn't make
	Replayed      float64 // one that was on the bus before

	// masterd.
	StoreFails     float64 // not done, told failed
	StoreToldFalse float64 // done, told failed
	StoreStalls    float64
	KilledAtStep   float64

	// A minion.
	ExecutorKilled float64
	SaltKilled     float64 // the Salt job process, with or without its children
	Stalled        float64 // SIGSTOP between two steps
	EffectFails    float64
	EffectLong     float64 // minutes; a few longer than Salt's time

	// Events of the schedule as a whole.
	Kills        int // of masterd
	Stops        int // SIGTERM
	MasterDowns  int
	Deaf         int
	Gaps         int
	ClockSteps   int
	Reboots      int
	MinionDowns  int
	LedgerLost   int // with an adoption afterwards
	LedgerBack   int // put back from a copy, the whole disk or the folder alone
	Clones       int
	DatabaseBack int // `masterd restore` of an older copy
	DatabaseLost int // `masterd init`, without a copy
	Replaced     int // servers that are destroyed, and get a successor
	Operators    int // who look after what is uncertain
	SameSource   float64
}

// drawPlan draws what may go wrong. Half of all faults are off in a schedule,
// so that there are mild ones and ones with few kinds of trouble.
func (w *World) drawPlan() Plan {
	r := w.draw("plan")
	p := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Float64() * most
	}
	n := func(most int) int {
		if r.IntN(2) == 0 {
			return 0
		}
		return 1 + r.IntN(most)
	}
	plan := Plan{
		Length:   []time.Duration{2 * time.Minute, 4 * time.Minute, 15 * time.Minute, 140 * time.Minute}[r.IntN(4)],
		Requests: 1 + r.IntN(4), Targets: 1 + r.IntN(5)/4,
		RequestLost: p(.15), RequestLate: p(.15), ReplyLost: p(.3), NothingSent: p(.1), NoConnection: p(.1),
		JobLost: p(.2), JobLate: p(.3), JobQueued: p(.3), JobTwice: p(.4),
		ReturnLost: p(.3), ReturnLate: p(.2), ReturnTwice: p(.3), ReturnGarbled: p(.1), Forged: p(.3), Replayed: p(.3),
		StoreFails: p(.1), StoreToldFalse: p(.1), StoreStalls: p(.05), KilledAtStep: p(.04),
		ExecutorKilled: p(.03), SaltKilled: p(.3), Stalled: p(.04), EffectFails: p(.5), EffectLong: p(.5),
		Kills: n(3), Stops: n(1), MasterDowns: n(2), Deaf: n(2), Gaps: n(3), ClockSteps: n(2),
		Reboots: n(2), MinionDowns: n(2), Operators: n(4), SameSource: .2,
	}
	// What can't be told apart when it comes together comes alone.
	switch r.IntN(12) {
	case 0:
		plan.LedgerLost = 1
	case 1:
		plan.LedgerBack = 1 + r.IntN(2)
	case 2:
		plan.Clones = 1
	case 3:
		plan.DatabaseBack = 1 + r.IntN(2)
	case 4:
		plan.DatabaseLost = 1
	case 5:
		plan.DatabaseBack, plan.LedgerLost = 1+r.IntN(2), 1
	case 6:
		plan.DatabaseBack, plan.LedgerBack = 1+r.IntN(2), 1
	case 7:
		plan.Replaced = 1
	}
	return plan
}

// events gives the moments of the schedule's own events.
func (w *World) events() []event {
	var all []event
	add := func(n int, name string, do func(r *rand.Rand)) {
		for range n {
			r := w.draw("event/" + name)
			all = append(all, event{at: time.Duration(r.Int64N(int64(w.plan.Length))), name: name, do: func() { do(r) }})
		}
	}
	p := w.plan
	add(p.Kills, "kill", func(*rand.Rand) { w.killMaster("by the schedule") })
	add(p.Stops, "stop", func(*rand.Rand) { w.stopMaster() })
	add(p.MasterDowns, "master down", func(r *rand.Rand) { w.masterDown(time.Duration(r.Int64N(int64(90 * time.Second)))) })
	add(p.Deaf, "deaf", func(r *rand.Rand) { w.beDeaf(time.Duration(r.Int64N(int64(2 * time.Minute)))) })
	add(p.Gaps, "gap", func(*rand.Rand) { w.gap() })
	add(p.ClockSteps, "clock step", func(r *rand.Rand) { w.stepClock(r) })
	add(p.Reboots, "reboot", func(r *rand.Rand) { w.someMinion(r).reboot(nil, "") })
	add(p.MinionDowns, "minion down", func(r *rand.Rand) { w.someMinion(r).down(time.Duration(r.Int64N(int64(3 * time.Minute)))) })
	add(p.LedgerLost, "ledger lost", func(r *rand.Rand) { w.loseLedger(r) })
	add(p.LedgerBack, "ledger back", func(r *rand.Rand) { w.putLedgerBack(r) })
	add(p.Clones, "clone", func(r *rand.Rand) { w.clone(r) })
	add(p.DatabaseLost, "database lost", func(*rand.Rand) { w.loseDatabase() })
	add(p.Replaced, "replaced", func(r *rand.Rand) { w.replace(r) })
	add(p.Operators, "operator", func(r *rand.Rand) { w.operate(r) })
	add(p.DatabaseBack, "database back", func(r *rand.Rand) { w.putDatabaseBack(r) })
	return all
}

type event struct {
	at   time.Duration
	name string
	do   func()
}
