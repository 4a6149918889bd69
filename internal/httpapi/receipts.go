package httpapi

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// Receipts is what an operator may see and settle of receipts. Like Operator it
// is there on the Unix socket alone, for root.
type Receipts interface {
	ReceiptsList(ctx context.Context, q ListQuery) (ReceiptList, error)
	ReceiptsShow(ctx context.Context, request string, source bool) (ReceiptDetail, error)
	// Evidence asks the target again. It may take most of a minute.
	Evidence(ctx context.Context, request string) (EvidenceAnswer, error)
	Reconcile(ctx context.Context, q ReconcileQuery) (ReconcileAnswer, error)
}

// ListQuery narrows a list. Zero values don't.
type ListQuery struct {
	Target    string `json:"target,omitempty"`
	Status    string `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	Conflicts bool   `json:"conflicts,omitempty"`
	Owed      bool   `json:"owed,omitempty"`
	Limit     int64  `json:"limit,omitempty"`
}

// ReconcileQuery is an operator's settlement. By is filled in by the server.
type ReconcileQuery struct {
	Request    string `json:"request"`
	Outcome    string `json:"outcome"`
	Reason     string `json:"reason"`
	Observed   string `json:"observed"`
	Confirm    string `json:"confirm,omitempty"`
	ServerGone bool   `json:"server_gone,omitempty"`
	By         string `json:"-"`
}

// ReceiptRow is one receipt in a list.
type ReceiptRow struct {
	Request      string          `json:"request"`
	Target       string          `json:"target"`
	Instance     string          `json:"instance"`
	Profile      receipt.Profile `json:"profile"`
	Status       receipt.Status  `json:"status"`
	State        receipt.State   `json:"state"`
	Code         *problem.Code   `json:"code"`
	JID          *string         `json:"jid"`
	Revision     int64           `json:"revision"`
	Digest       string          `json:"digest"`
	Requester    string          `json:"requester"`
	AcceptedAt   *string         `json:"accepted_at"`
	DispatchedAt *string         `json:"dispatched_at"`
	FinishedAt   *string         `json:"finished_at"`
	Settled      bool            `json:"settled"`
	FromLedger   bool            `json:"from_ledger"`
	Conflict     bool            `json:"evidence_conflict"`
	Owed         bool            `json:"settlement_owed"`
}

// ReceiptList is a list, the newest first.
type ReceiptList struct {
	Epoch    string       `json:"epoch"`
	Receipts []ReceiptRow `json:"receipts"`
	Next     string       `json:"next"`
}

// ReceiptDetail is all that is known of one receipt. Source is there only where
// it was asked for, and where there is one.
type ReceiptDetail struct {
	ReceiptRow
	Counts      countsJSON       `json:"counts"`
	Preflight   preflightJSON    `json:"preflight"`
	BlockedBy   *blockerJSON     `json:"blocked_by"`
	Detail      *string          `json:"detail"`
	Previous    *string          `json:"previous"`
	Again       bool             `json:"again"`
	ExpiresAt   *string          `json:"expires_at"`
	Fingerprint *string          `json:"fingerprint"`
	Ledger      *string          `json:"ledger"`
	AliasOf     *string          `json:"alias_of"` // asked for by another request that was bound to it
	Settlement  *SettlementJSON  `json:"settlement"`
	Transitions []TransitionJSON `json:"transitions"`
	Witnesses   []WitnessJSON    `json:"witnesses"`
	Source      *string          `json:"source,omitempty"`
	Next        string           `json:"next"`
}

// SettlementJSON is an operator's recorded word.
type SettlementJSON struct {
	Outcome     receipt.State `json:"outcome"`
	Reason      string        `json:"reason"`
	Observed    string        `json:"observed"`
	ServerGone  bool          `json:"server_gone"`
	By          string        `json:"by"`
	At          *string       `json:"at"`
	Owed        bool          `json:"owed"`
	DeliveredAt *string       `json:"delivered_at"`
}

// TransitionJSON is one recorded change.
type TransitionJSON struct {
	Seq   int               `json:"seq"`
	At    *string           `json:"at"`
	Event receipt.EventName `json:"event"`
	From  receipt.State     `json:"from"`
	To    receipt.State     `json:"to"`
	Actor string            `json:"actor"`
	Code  *problem.Code     `json:"code"`
}

// WitnessJSON is one authenticated statement.
type WitnessJSON struct {
	At       *string       `json:"at"`
	Kind     string        `json:"kind"`
	Result   string        `json:"result"`
	Code     *problem.Code `json:"code"`
	Counts   *countsJSON   `json:"counts"`
	Ledger   *string       `json:"ledger"`
	Proves   string        `json:"proves"`
	Conflict bool          `json:"conflict"`
}

// EvidenceAnswer is what asking again has brought, and all that was said before.
type EvidenceAnswer struct {
	Answered  bool          `json:"answered"`
	Result    *string       `json:"result"`
	Survivors int           `json:"survivors"`
	Silence   *string       `json:"silence"` // why nobody answered, for people
	Receipt   ReceiptDetail `json:"receipt"`
	Next      string        `json:"next"`
}

// ReconcileAnswer is what was settled, and who said so: "operator" (just now),
// "already" (before), "evidence" (the ledger itself).
type ReconcileAnswer struct {
	Settled  string        `json:"settled_by"`
	Answered bool          `json:"answered"`
	Silence  *string       `json:"silence"`
	Receipt  ReceiptDetail `json:"receipt"`
	Next     string        `json:"next"`
}

// WireTime writes a time as the API does.
var WireTime = timeOrNull

// WireCounts writes counts as the API does.
func WireCounts(c receipt.Counts) countsJSON { return countsJSON(c) }

// RowOf gives a receipt's row.
func RowOf(r receipt.Receipt, conflict, owed bool) ReceiptRow {
	return ReceiptRow{
		Request: r.Request, Target: r.Body.Target, Instance: r.Body.Instance, Profile: r.Body.Profile,
		Status: r.State.Status(), State: r.State, Code: orNull(r.Code), JID: orNull(r.JID),
		Revision: r.Body.Revision, Digest: r.Body.Digest, Requester: r.Requester,
		AcceptedAt: timeOrNull(r.AcceptedAt), DispatchedAt: timeOrNull(r.DispatchedAt), FinishedAt: timeOrNull(r.FinishedAt),
		Settled: r.Settled, FromLedger: r.FromLedger, Conflict: conflict, Owed: owed,
	}
}

// DetailOf gives what the receipt itself says.
func DetailOf(r receipt.Receipt, conflict, owed bool) ReceiptDetail {
	d := ReceiptDetail{
		ReceiptRow: RowOf(r, conflict, owed), Counts: countsJSON(r.Counts),
		Preflight: preflightJSON{Passed: r.Preflight.Passed, Total: 1},
		Detail:    orNull(r.Detail), Previous: orNull(r.Body.Previous), Again: r.Body.Again, ExpiresAt: timeOrNull(r.ExpiresAt()),
		Fingerprint: orNull(r.Fingerprint), Ledger: orNull(r.Ledger),
		Transitions: []TransitionJSON{}, Witnesses: []WitnessJSON{},
	}
	if b := r.BlockedBy; b != nil {
		d.BlockedBy = &blockerJSON{Request: b.Request, Profile: b.Profile, Since: timeOrNull(b.Since)}
	}
	return d
}

// Bounds of an operator's words.
const (
	MaxObserved = 16 << 10
	MaxList     = 10_000
)

func (c *call) receiptsList() {
	q, err := c.readList()
	if err != nil {
		c.fail(err)
		return
	}
	list, err := c.receipts.ReceiptsList(c.r.Context(), q)
	c.answerOperator(list, problem.ExitOK, err)
}

func (c *call) answerOperator(answer any, exit int, err error) {
	if err != nil {
		c.fail(err)
		return
	}
	c.send(http.StatusOK, exit, answer)
}

var statuses = []receipt.Status{
	receipt.StatusQueued, receipt.StatusRunning, receipt.StatusSucceeded, receipt.StatusFailed, receipt.StatusUncertain,
}

func (c *call) readList() (q ListQuery, err error) {
	fields, err := c.operatorFields("target", "status", "code", "conflicts", "owed", "limit")
	if err != nil {
		return q, err
	}
	if _, there := fields["target"]; there {
		if q.Target, err = fields.target(); err != nil {
			return q, err
		}
	}
	if q.Status, _, err = fields.text("status"); err != nil {
		return q, err
	}
	known := q.Status == ""
	for _, s := range statuses {
		known = known || string(s) == q.Status
	}
	if !known {
		return q, badField("status", "isn't queued, running, succeeded, failed or uncertain")
	}
	if q.Code, _, err = fields.text("code"); err != nil {
		return q, err
	}
	if q.Code != "" && !problem.Known(problem.Code(q.Code)) {
		return q, badField("code", "isn't a code of the list")
	}
	if q.Conflicts, err = fields.flag("conflicts"); err != nil {
		return q, err
	}
	if q.Owed, err = fields.flag("owed"); err != nil {
		return q, err
	}
	q.Limit, _, err = fields.integer("limit", MaxList)
	return q, err
}

func (c *call) receiptsShow() {
	fields, err := c.operatorFields("request", "source")
	if err != nil {
		c.fail(err)
		return
	}
	if c.request, err = fields.uuid("request", true); err != nil {
		c.fail(err)
		return
	}
	source, err := fields.flag("source")
	if err != nil {
		c.fail(err)
		return
	}
	detail, err := c.receipts.ReceiptsShow(c.r.Context(), c.request, source)
	c.answerOperator(detail, exitOfStatus(detail.Status), err)
}

func (c *call) evidence() {
	fields, err := c.operatorFields("request")
	if err != nil {
		c.fail(err)
		return
	}
	if c.request, err = fields.uuid("request", true); err != nil {
		c.fail(err)
		return
	}
	answer, err := c.receipts.Evidence(c.r.Context(), c.request)
	c.answerOperator(answer, exitOfStatus(answer.Receipt.Status), err)
}

func (c *call) reconcile() {
	q, err := c.readReconcile()
	if err != nil {
		c.fail(err)
		return
	}
	answer, err := c.receipts.Reconcile(c.r.Context(), q)
	// A settlement that was recorded is a success of this call, whatever it says.
	c.answerOperator(answer, problem.ExitOK, err)
}

func (c *call) readReconcile() (q ReconcileQuery, err error) {
	q.By = c.peer.String()
	fields, err := c.operatorFields("request", "outcome", "reason", "observed", "confirm", "server_gone")
	if err != nil {
		return q, err
	}
	if q.Request, err = fields.uuid("request", true); err != nil {
		return q, err
	}
	c.request = q.Request
	if q.Outcome, err = fields.mustText("outcome"); err != nil {
		return q, err
	}
	if q.Outcome != string(receipt.Succeeded) && q.Outcome != string(receipt.Failed) {
		return q, badField("outcome", "isn't succeeded or failed")
	}
	if q.Reason, err = fields.prose("reason", MaxReason); err != nil {
		return q, err
	}
	if q.Observed, err = fields.report("observed", MaxObserved); err != nil {
		return q, err
	}
	if q.Confirm, _, err = fields.text("confirm"); err != nil {
		return q, err
	}
	q.ServerGone, err = fields.flag("server_gone")
	return q, err
}

// report gives a required text of several lines, such as what a command printed.
func (o object) report(name string, most int) (string, error) {
	value, err := o.mustText(name)
	if err != nil {
		return "", err
	}
	value = strings.TrimRight(strings.ReplaceAll(value, "\r\n", "\n"), "\n ")
	if value == "" || len(value) > most || !utf8.ValidString(value) {
		return "", badField(name, "has no characters, or more than 16 KiB")
	}
	for _, r := range value {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r <= 0x9f {
			return "", badField(name, "has a control character other than tab and newline")
		}
	}
	return value, nil
}

// ReceiptsList lists receipts.
func (c *Client) ReceiptsList(ctx context.Context, q ListQuery) (out ReceiptList, err error) {
	err = c.into(ctx, "/v1/operator/receipts_list", q, &out)
	return out, err
}

// ReceiptsShow tells all that is known of one receipt.
func (c *Client) ReceiptsShow(ctx context.Context, request string, source bool) (out ReceiptDetail, err error) {
	err = c.into(ctx, "/v1/operator/receipts_show", map[string]any{"request": request, "source": source}, &out)
	return out, err
}

// Evidence has the target asked again.
func (c *Client) Evidence(ctx context.Context, request string) (out EvidenceAnswer, err error) {
	err = c.into(ctx, "/v1/operator/evidence", map[string]string{"request": request}, &out)
	return out, err
}

// Reconcile settles an uncertain receipt.
func (c *Client) Reconcile(ctx context.Context, q ReconcileQuery) (out ReconcileAnswer, err error) {
	err = c.into(ctx, "/v1/operator/reconcile", q, &out)
	return out, err
}
