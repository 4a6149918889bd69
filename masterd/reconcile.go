package main

import (
	"context"
	"fmt"

	"github.com/oduflow/oduflow-salt/internal/exchange"
	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/reconcile"
	"github.com/oduflow/oduflow-salt/internal/store"
)

// The daemon's side of the operators' commands about receipts.

// statesOf gives the states that callers know as one status.
func statesOf(status string) (out []receipt.State) {
	for _, s := range receipt.States() {
		if status != "" && string(s.Status()) == status {
			out = append(out, s)
		}
	}
	return out
}

// ReceiptsList is part of httpapi.Receipts.
func (d *daemon) ReceiptsList(ctx context.Context, q httpapi.ListQuery) (httpapi.ReceiptList, error) {
	out := httpapi.ReceiptList{Epoch: d.db.Epoch(), Receipts: []httpapi.ReceiptRow{}}
	filter := store.Filter{
		Target: q.Target, States: statesOf(q.Status), Code: problem.Code(q.Code),
		Conflicts: q.Conflicts, Owed: q.Owed, Limit: int(q.Limit),
	}
	list, err := d.db.List(ctx, filter)
	if err != nil {
		return out, err
	}
	marks, err := d.db.Marks(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range list {
		out.Receipts = append(out.Receipts, httpapi.RowOf(r, marks.Conflicts[r.Request], marks.Owed[r.Request]))
	}
	out.Next = nextOf(list, marks)
	return out, nil
}

// nextOf says what an operator can do about a list: about the oldest receipt of
// those that need somebody most.
func nextOf(list []receipt.Receipt, marks store.Marks) string {
	var uncertain, conflict string
	for _, r := range list { // the newest first
		if r.State == receipt.Uncertain {
			uncertain = r.Request
		}
		if marks.Conflicts[r.Request] {
			conflict = r.Request
		}
	}
	switch {
	case uncertain != "":
		return "masterd evidence " + uncertain
	case conflict != "":
		return "masterd receipts show " + conflict + " says what contradicts it"
	case len(list) == 1 && list[0].BlockedBy != nil:
		return "masterd receipts show " + list[0].BlockedBy.Request
	}
	return "nothing: none of these waits for an operator"
}

// ReceiptsShow is part of httpapi.Receipts.
func (d *daemon) ReceiptsShow(ctx context.Context, request string, source bool) (httpapi.ReceiptDetail, error) {
	bound, err := d.db.Lookup(ctx, request)
	if err != nil {
		return httpapi.ReceiptDetail{}, err
	}
	detail, err := d.detail(ctx, bound.Execution)
	if bound.Reused {
		detail.AliasOf = &detail.Request
		detail.Request = request
	}
	if err != nil || !source || bound.Execution.FromLedger {
		return detail, err
	}
	text, err := d.db.Source(ctx, bound.Execution.Body.Digest)
	if err != nil {
		return httpapi.ReceiptDetail{}, err
	}
	s := string(text)
	detail.Source = &s
	return detail, nil
}

// detail gathers all that is recorded of a receipt.
func (d *daemon) detail(ctx context.Context, r receipt.Receipt) (httpapi.ReceiptDetail, error) {
	var out httpapi.ReceiptDetail
	settlement, err := d.db.Settlement(ctx, r.Request)
	if err != nil {
		return out, err
	}
	history, err := d.db.Transitions(ctx, r.Request)
	if err != nil {
		return out, err
	}
	witnesses, err := d.db.Witnesses(ctx, r.Request)
	if err != nil {
		return out, err
	}
	conflict, last := false, message.Result("")
	for _, w := range witnesses {
		conflict, last = conflict || w.Conflict, message.Result(w.Result)
	}
	out = httpapi.DetailOf(r, conflict, settlement != nil && settlement.Owed())
	for _, t := range history {
		out.Transitions = append(out.Transitions, httpapi.TransitionJSON{
			Seq: t.Seq, At: httpapi.WireTime(t.At), Event: t.Event, From: t.From, To: t.To, Actor: t.Actor, Code: orNull(t.Code),
		})
	}
	for _, w := range witnesses {
		j := httpapi.WitnessJSON{
			At: httpapi.WireTime(w.At), Kind: w.Kind, Result: w.Result, Code: orNull(w.Code), Ledger: orNull(w.Ledger),
			Proves: reconcile.Proves(message.Result(w.Result), w.Code), Conflict: w.Conflict,
		}
		if w.Counts != nil {
			counts := httpapi.WireCounts(*w.Counts)
			j.Counts = &counts
		}
		if w.Conflict {
			j.Proves = "nothing: it contradicts what was known"
		}
		out.Witnesses = append(out.Witnesses, j)
	}
	if s := settlement; s != nil {
		out.Settlement = &httpapi.SettlementJSON{
			Outcome: s.Outcome, Reason: s.Reason, Observed: s.Observed, ServerGone: s.ServerGone, By: s.By,
			At: httpapi.WireTime(s.At), Owed: s.Owed(), DeliveredAt: httpapi.WireTime(s.DeliveredAt),
		}
	}
	out.Next = reconcile.Next(r, last, settlement)
	if conflict && r.State.Terminal() {
		out.Next = fmt.Sprintf("find out on %s which is true: was its ledger, or the whole server, put back from a snapshot, or cloned? "+
			"masterd keeps both and changes nothing by itself", r.Body.Target)
	}
	return out, nil
}

func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

// Evidence is part of httpapi.Receipts.
func (d *daemon) Evidence(ctx context.Context, request string) (httpapi.EvidenceAnswer, error) {
	var out httpapi.EvidenceAnswer
	f, err := d.reconcile.Ask(ctx, request)
	if err != nil {
		return out, err
	}
	if out.Receipt, err = d.detail(ctx, f.Receipt); err != nil {
		return out, err
	}
	out.Next = out.Receipt.Next
	out.Answered, out.Silence = answered(f)
	if a := f.Answer; a != nil {
		result := string(a.Result)
		out.Result, out.Survivors = &result, a.Survivors
	} else if f.Receipt.State == receipt.Uncertain {
		out.Next = "bring the minion's executor to answer and ask again; where it never will: " + out.Next +
			" (is the server destroyed: masterd adopt its successor first, then add --server-gone)"
	}
	return out, nil
}

func answered(f reconcile.Finding) (ok bool, silence *string) {
	if f.Answer != nil {
		return true, nil
	}
	return false, orNull(exchange.Hint(f.Silence))
}

// Reconcile is part of httpapi.Receipts.
func (d *daemon) Reconcile(ctx context.Context, q httpapi.ReconcileQuery) (httpapi.ReconcileAnswer, error) {
	var out httpapi.ReconcileAnswer
	report, err := d.reconcile.Reconcile(ctx, reconcile.Order{
		Request: q.Request, Outcome: receipt.State(q.Outcome), Reason: q.Reason, Observed: q.Observed,
		Confirm: q.Confirm, ServerGone: q.ServerGone, By: q.By,
	})
	if err != nil {
		return out, err
	}
	out.Settled = string(report.How)
	out.Answered, out.Silence = answered(report.Finding)
	if out.Receipt, err = d.detail(ctx, report.Finding.Receipt); err != nil {
		return out, err
	}
	out.Next = out.Receipt.Next
	return out, nil
}

// moved tells everybody of a receipt that an operator, or a ledger, has changed.
func (d *daemon) moved(r receipt.Receipt) {
	d.dispatch.Moved(r)
	d.service.Changed(r)
}

// records is what the lanes tell of, and owe to, the targets' ledgers.
type records struct{ d *daemon }

func (r records) Owed(ctx context.Context, target, instance string) []message.Settlement {
	return r.d.reconcile.Owed(ctx, target, instance)
}

func (r records) Paid(ctx context.Context, target string, states []message.SettlementState) {
	r.d.reconcile.Paid(ctx, target, states)
}

func (r records) Unfinished(ctx context.Context, asked receipt.Receipt, request string) {
	r.d.reconcile.Unfinished(ctx, asked, request)
}

// sayEpoch logs which beginning of the database this is.
func (d *daemon) sayEpoch(ctx context.Context) {
	epochs, err := d.db.Epochs(ctx)
	if err != nil || len(epochs) == 0 {
		return
	}
	last := epochs[len(epochs)-1]
	log := d.log.Info
	if last.Cause != "init" {
		log = d.log.Warn
	}
	log("receipt database", "epoch", last.ID, "cause", last.Cause, "since", last.At, "epochs", len(epochs))
}
