package minion

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/keyfile"
	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/manifest"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

// customProfile is the one profile that this executor runs.
const customProfile = "custom"

// pluginName is the plugin's name in the manifest.
const pluginName = "plugins/custom"

// selfName is this program's name in the manifest.
const selfName = "minion-executor"

// prepare checks whether a request may be started, writes its prepared record
// and answers a ticket. It has no effect and may be repeated.
func (c *call) prepare(ctx context.Context) (message.Answer, error) {
	s, err := c.session(ctx)
	if err != nil {
		return refused(ledgerCode(err)), nil
	}
	defer s.Close()
	id, err := s.Identity()
	if err != nil {
		return refused(ledgerCode(err)), nil
	}
	c.recall(id)
	var settlements *message.SettlementStates
	if c.isOurs(id) && !c.behind {
		settlements = c.owed(s)
	}
	answer, err := c.prepareIn(s, id)
	if err != nil {
		c.Log.Warn("a prepare is refused", "code", ledgerCode(err), "error", err)
		answer = refused(ledgerCode(err))
	}
	if id != nil && answer.Ledger == "" {
		answer.Ledger, answer.Instance = id.Ledger, id.Instance
	}
	answer.Settlements = settlements
	return answer, nil
}

// ledgerCode turns what the ledger says into what a receipt may say.
func ledgerCode(err error) problem.Code {
	switch problem.CodeOf(err) { //nolint:exhaustive // the codes that a ledger knows
	case problem.MinionUnsupported:
		return problem.MinionUnsupported
	case ledger.Locked:
		return problem.TargetBusy
	default:
		return problem.LedgerUnwritable // damaged, or written by a newer executor, as well
	}
}

func (c *call) prepareIn(s *ledger.Session, id *ledger.Identity) (message.Answer, error) {
	if !c.isOurs(id) {
		return refused(problem.LedgerChanged), nil
	}
	r, err := s.Record(c.m.Request)
	if err != nil {
		return message.Answer{}, err
	}
	switch {
	case r == nil:
	case r.State != ledger.Prepared:
		return c.look(s, r)
	case c.behind: // nothing more is prepared on it until it was adopted again
	case r.Digest != c.m.Digest:
		return about(r, refused(problem.RequestConflict)), nil
	}
	if c.behind {
		return refused(problem.LedgerChanged), nil
	}
	if !isDigest(c.m.Digest) {
		return refused(problem.RequestConflict), nil
	}
	if id.Instance != c.m.Instance {
		return refused(problem.InstanceDiffers), nil
	}
	if r != nil {
		if ticket := r.TicketFor(c.m.Nonce); ticket != "" {
			return about(r, message.Answer{Result: message.Prepared, Ticket: ticket}), nil
		}
	}
	if code := c.support(); code != "" {
		return refused(code), nil
	}
	if a, err := c.clear(s); err != nil || a.Result != "" {
		return a, err
	}
	salt, ticket, err := c.ledger.NewTicket(c.m.Nonce)
	if err != nil {
		return message.Answer{}, err
	}
	err = s.Prepare(ledger.Preparation{
		Request: c.m.Request, Target: c.m.Target, Instance: c.m.Instance, Profile: c.body.Profile,
		Digest: c.m.Digest, Ledger: id.Ledger, Salt: salt,
	}, ticket)
	if err != nil {
		return message.Answer{}, err
	}
	return message.Answer{
		Result: message.Prepared, Ticket: ticket, Digest: c.m.Digest, Ledger: id.Ledger, Instance: id.Instance,
	}, nil
}

// isDigest: a signed message has no other; this keeps it so.
func isDigest(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == sha256.Size && strings.ToLower(s) == s
}

// support says why this minion can't run the request, "" if it can.
func (c *call) support() problem.Code {
	f := c.facts
	if !f.Multiprocessing || f.Proxy || f.Resources || c.UID != f.UID || c.UID != 0 && !f.AllowUnprivileged {
		return problem.MinionUnsupported
	}
	if c.body.Profile != customProfile {
		return problem.ExecutorOutdated
	}
	if _, err := c.plugin(); err != nil {
		c.Log.Warn("the executors aren't as they were signed", "error", err)
		return problem.ExecutorOutdated
	}
	return ""
}

// clear says what stands in the way on this minion right now.
func (c *call) clear(s *ledger.Session) (message.Answer, error) {
	open, err := s.OpenRecords()
	if err != nil {
		return message.Answer{}, err
	}
	for _, r := range open {
		if !r.Unfinished() {
			continue
		}
		found, err := c.look(s, r)
		if err != nil {
			return message.Answer{}, err
		}
		if r.Unfinished() { // it may just have been proved that it never began
			return message.Answer{
				Result: message.Refused, Code: problem.RecordUnfinished,
				Unfinished: r.Request, Survivors: found.Survivors,
			}, nil
		}
	}
	if c.facts.PillarErrors {
		return refused(problem.PillarError), nil
	}
	lease, err := c.ledger.ProbeLease()
	if err != nil {
		return message.Answer{}, err
	}
	defer lease.Release()
	if c.facts.StateRunning || lease.Held {
		return refused(problem.StateRunning), nil
	}
	return message.Answer{}, nil
}

// plugin finds the plugin in the signed manifest. It doesn't hash it: that is
// for the launch.
func (c *call) plugin() (manifest.File, error) {
	m, err := c.manifest()
	if err != nil {
		return manifest.File{}, err
	}
	if _, err := m.Find(selfName); err != nil {
		return manifest.File{}, err
	}
	f, err := m.Find(pluginName)
	if err != nil {
		return manifest.File{}, err
	}
	info, err := os.Stat(filepath.Join(c.facts.LibDir, pluginName))
	if err != nil {
		return manifest.File{}, problem.Wrap(manifest.Missing, err, "the plugin can't be read")
	}
	if info.Size() != f.Size {
		return manifest.File{}, problem.New(manifest.Differs, "the plugin isn't the one in the signed manifest")
	}
	return f, nil
}

func (c *call) manifest() (*manifest.Manifest, error) {
	pinned, err := keyfile.ReadPublic(filepath.Join(c.facts.EtcDir, ExecutorsKey))
	if err != nil {
		return nil, err
	}
	return manifest.Load(c.facts.LibDir, pinned)
}
