package problem

import "slices"

// Kind says where a code may appear. A code has exactly one kind, but
// RequestConflict, which is an answer and a refusal both.
type Kind int

// The kinds, after the closed lists of the protocol.
const (
	KindAnswer    Kind = iota + 1 // an error answer; nothing is stored
	KindSource                    // an error answer about a source; nothing is stored
	KindRefused                   // a receipt failed, 0 of 1 preflight checks
	KindFailed                    // a receipt failed, 1 of 1 preflight checks
	KindUncertain                 // a receipt uncertain
)

// Exit statuses of the programs, also given to `salt-run` by the runner.
const (
	ExitOK          = 0 // answered, and nothing has failed
	ExitFailed      = 1 // a receipt failed, or a defect of ours
	ExitUsage       = 2 // what was asked can't be understood or isn't valid
	ExitUncertain   = 3 // a receipt is uncertain
	ExitConflict    = 4 // it contradicts what is stored
	ExitNotFound    = 5
	ExitForbidden   = 6
	ExitUnavailable = 7 // try again later
)

// Row is one line of the total table from code to every edge. HTTP is the
// status of an error answer that carries the code (a receipt always travels
// with 200, so receipt codes carry 200). Exit is the exit status of programs
// and of the runner. Retry says that the same call may succeed later.
type Row struct {
	Code  Code
	Kind  Kind
	HTTP  int
	Exit  int
	Retry bool
}

var table = []Row{
	{Internal, KindAnswer, 500, ExitFailed, false},
	{BadRequest, KindAnswer, 400, ExitUsage, false},
	{UnknownField, KindAnswer, 400, ExitUsage, false},
	{BadField, KindAnswer, 400, ExitUsage, false},
	{Unauthorized, KindAnswer, 401, ExitForbidden, false},
	{Forbidden, KindAnswer, 403, ExitForbidden, false},
	{NotFound, KindAnswer, 404, ExitNotFound, false},
	{MethodNotAllowed, KindAnswer, 405, ExitUsage, false},
	{TooLarge, KindAnswer, 413, ExitUsage, false},
	{UnsupportedType, KindAnswer, 415, ExitUsage, false},
	{UnknownRequest, KindAnswer, 404, ExitNotFound, false},
	{DigestMismatch, KindAnswer, 409, ExitConflict, false},
	{PreviousRequired, KindAnswer, 409, ExitConflict, false},
	{PreviousNotFailed, KindAnswer, 409, ExitConflict, false},
	{NotConfigured, KindAnswer, 409, ExitConflict, false},
	{InstanceMismatch, KindAnswer, 409, ExitConflict, false},
	{UnknownRevision, KindAnswer, 409, ExitConflict, false},
	{AcceptUntilPassed, KindAnswer, 409, ExitConflict, false},
	{VerificationStale, KindAnswer, 409, ExitConflict, false},
	{NotWritable, KindAnswer, 503, ExitUnavailable, true},
	{Starting, KindAnswer, 503, ExitUnavailable, true},
	{Deaf, KindAnswer, 503, ExitUnavailable, true},
	{Usage, KindAnswer, 400, ExitUsage, false},
	{Unreachable, KindAnswer, 503, ExitUnavailable, true},
	{BadConfig, KindAnswer, 500, ExitUsage, false},

	{SourceTooLarge, KindSource, 422, ExitUsage, false},
	{SourceEncoding, KindSource, 422, ExitUsage, false},
	{YAMLSyntax, KindSource, 422, ExitUsage, false},
	{SourceEmpty, KindSource, 422, ExitUsage, false},
	{TooManyIDs, KindSource, 422, ExitUsage, false},
	{TooDeep, KindSource, 422, ExitUsage, false},
	{Jinja, KindSource, 422, ExitUsage, false},
	{RendererDirective, KindSource, 422, ExitUsage, false},
	{YAMLDirective, KindSource, 422, ExitUsage, false},
	{SeveralDocuments, KindSource, 422, ExitUsage, false},
	{Anchor, KindSource, 422, ExitUsage, false},
	{Alias, KindSource, 422, ExitUsage, false},
	{MergeKey, KindSource, 422, ExitUsage, false},
	{Tag, KindSource, 422, ExitUsage, false},
	{DuplicateKey, KindSource, 422, ExitUsage, false},
	{DuplicateArgument, KindSource, 422, ExitUsage, false},
	{DuplicateFunction, KindSource, 422, ExitUsage, false},
	{SeveralFunctions, KindSource, 422, ExitUsage, false},
	{ReservedID, KindSource, 422, ExitUsage, false},
	{BadID, KindSource, 422, ExitUsage, false},
	{BadBody, KindSource, 422, ExitUsage, false},
	{BadFunction, KindSource, 422, ExitUsage, false},
	{BadArgument, KindSource, 422, ExitUsage, false},
	{ReservedArgument, KindSource, 422, ExitUsage, false},
	{BadScalar, KindSource, 422, ExitUsage, false},
	{BadKey, KindSource, 422, ExitUsage, false},
	{BadRequisite, KindSource, 422, ExitUsage, false},
	{BadName, KindSource, 422, ExitUsage, false},
	{TooLargeCanonical, KindSource, 422, ExitUsage, false},
	{UnsupportedElement, KindSource, 422, ExitUsage, false},

	{TargetUnknown, KindRefused, 200, ExitFailed, false},
	{TargetBusy, KindRefused, 200, ExitFailed, false},
	{TargetQuarantined, KindRefused, 200, ExitFailed, false},
	{StartWindowPassed, KindRefused, 200, ExitFailed, false},
	{ExecutorSilent, KindRefused, 200, ExitFailed, false},
	{ExecutorOutdated, KindRefused, 200, ExitFailed, false},
	{KeyChanged, KindRefused, 200, ExitFailed, false},
	{LedgerChanged, KindRefused, 200, ExitFailed, false},
	{InstanceDiffers, KindRefused, 200, ExitFailed, false},
	{DuplicateTarget, KindRefused, 200, ExitFailed, false},
	{RecordUnfinished, KindRefused, 200, ExitFailed, false},
	{PillarError, KindRefused, 200, ExitFailed, false},
	{StateRunning, KindRefused, 200, ExitFailed, false},
	{MinionUnsupported, KindRefused, 200, ExitFailed, false},
	{LedgerUnwritable, KindRefused, 200, ExitFailed, false},
	{PreviousSettled, KindRefused, 200, ExitFailed, false},
	// As an answer 409, exit 4; in a receipt the state decides, as for all.
	{RequestConflict, KindRefused, 409, ExitConflict, false},

	{StateFailed, KindFailed, 200, ExitFailed, false},
	{NotAllAccounted, KindFailed, 200, ExitFailed, false},
	{BadReturn, KindFailed, 200, ExitFailed, false},
	{NotSent, KindFailed, 200, ExitFailed, false},
	{NeverBegan, KindFailed, 200, ExitFailed, false},
	{NeverStarted, KindFailed, 200, ExitFailed, false},
	{SettledFailed, KindFailed, 200, ExitFailed, false},
	{StartRefusedTicket, KindFailed, 200, ExitFailed, false},
	{StartRefusedLocked, KindFailed, 200, ExitFailed, false},
	{StartRefusedDigest, KindFailed, 200, ExitFailed, false},
	{StartRefusedStateRunning, KindFailed, 200, ExitFailed, false},
	{StartRefusedPluginMismatch, KindFailed, 200, ExitFailed, false},

	{Interrupted, KindUncertain, 200, ExitUncertain, false},
	{StillRunning, KindUncertain, 200, ExitUncertain, false},
	{LedgerAbsent, KindUncertain, 200, ExitUncertain, false},
	{NoAnswer, KindUncertain, 200, ExitUncertain, false},
}

var byCode = func() map[Code]Row {
	m := make(map[Code]Row, len(table))
	for _, r := range table {
		m[r.Code] = r
	}
	return m
}()

// Table gives a copy of the whole table, in the order of the protocol's lists.
func Table() []Row { return slices.Clone(table) }

// RowOf gives the row of a code. A code that isn't in the table is a defect
// and is answered as Internal.
func RowOf(c Code) Row {
	if r, ok := byCode[c]; ok {
		return r
	}
	return byCode[Internal]
}

// Known says whether c is in the table.
func Known(c Code) bool {
	_, ok := byCode[c]
	return ok
}
