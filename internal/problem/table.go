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
// status of an error answer that carries the code; a receipt always travels
// with 200, whatever its code. Exit is the exit status of programs
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
	{UnknownToken, KindAnswer, 404, ExitNotFound, false},
	{NotUncertain, KindAnswer, 409, ExitConflict, false},
	{JobRunning, KindAnswer, 409, ExitConflict, false},
	{OutcomeProved, KindAnswer, 409, ExitConflict, false},
	{NotConfirmed, KindAnswer, 400, ExitUsage, false},
	{NotReplaced, KindAnswer, 409, ExitConflict, false},
	{InstanceTaken, KindAnswer, 409, ExitConflict, false},

	{DatabaseMissing, KindAnswer, 503, ExitNotFound, false},
	{DatabaseExists, KindAnswer, 409, ExitConflict, false},
	{DatabaseLocked, KindAnswer, 503, ExitUnavailable, true},
	{DatabaseDamaged, KindAnswer, 503, ExitFailed, false},
	{DatabaseForeign, KindAnswer, 503, ExitConflict, false},
	{DatabaseNewer, KindAnswer, 503, ExitConflict, false},
	{DatabaseOlder, KindAnswer, 503, ExitConflict, false},
	{DatabaseUnsafe, KindAnswer, 503, ExitFailed, false},
	{DatabaseRolledBack, KindAnswer, 503, ExitConflict, false},

	{SourceTooLarge, KindSource, 422, ExitUsage, false},
	{SourceEncoding, KindSource, 422, ExitUsage, false},
	{YAMLSyntax, KindSource, 422, ExitUsage, false},
	{SourceEmpty, KindSource, 422, ExitUsage, false},
	{TooManyIDs, KindSource, 422, ExitUsage, false},
	{TooDeep, KindSource, 422, ExitUsage, false},
	{TooManyValues, KindSource, 422, ExitUsage, false},
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
	{LooksSecret, KindSource, 200, ExitOK, false},
	{DanglingRequisite, KindSource, 200, ExitOK, false},

	{TargetUnknown, KindRefused, 409, ExitFailed, false},
	{TargetBusy, KindRefused, 409, ExitFailed, false},
	{TargetQuarantined, KindRefused, 409, ExitFailed, false},
	{StartWindowPassed, KindRefused, 409, ExitFailed, false},
	{ExecutorSilent, KindRefused, 409, ExitFailed, false},
	{ExecutorOutdated, KindRefused, 409, ExitFailed, false},
	{KeyChanged, KindRefused, 409, ExitFailed, false},
	{LedgerChanged, KindRefused, 409, ExitFailed, false},
	{InstanceDiffers, KindRefused, 409, ExitFailed, false},
	{DuplicateTarget, KindRefused, 409, ExitFailed, false},
	{RecordUnfinished, KindRefused, 409, ExitFailed, false},
	{PillarError, KindRefused, 409, ExitFailed, false},
	{StateRunning, KindRefused, 409, ExitFailed, false},
	{MinionUnsupported, KindRefused, 409, ExitFailed, false},
	{LedgerUnwritable, KindRefused, 409, ExitFailed, false},
	{PreviousSettled, KindRefused, 409, ExitFailed, false},
	{EpochEnded, KindRefused, 409, ExitFailed, false},
	// As an answer 409, exit 4; in a receipt the state decides, as for all.
	{RequestConflict, KindRefused, 409, ExitConflict, false},

	{StateFailed, KindFailed, 409, ExitFailed, false},
	{NotAllAccounted, KindFailed, 409, ExitFailed, false},
	{BadReturn, KindFailed, 409, ExitFailed, false},
	{NotSent, KindFailed, 409, ExitFailed, false},
	{NeverBegan, KindFailed, 409, ExitFailed, false},
	{NeverStarted, KindFailed, 409, ExitFailed, false},
	{SettledFailed, KindFailed, 409, ExitFailed, false},
	{StartRefusedTicket, KindFailed, 409, ExitFailed, false},
	{StartRefusedLocked, KindFailed, 409, ExitFailed, false},
	{StartRefusedDigest, KindFailed, 409, ExitFailed, false},
	{StartRefusedStateRunning, KindFailed, 409, ExitFailed, false},
	{StartRefusedPluginMismatch, KindFailed, 409, ExitFailed, false},

	{Interrupted, KindUncertain, 409, ExitUncertain, false},
	{StillRunning, KindUncertain, 409, ExitUncertain, false},
	{LedgerAbsent, KindUncertain, 409, ExitUncertain, false},
	{NoAnswer, KindUncertain, 409, ExitUncertain, false},
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
