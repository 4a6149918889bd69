package problem

// Codes of answers: the request was not taken, nothing is stored.
const (
	Internal Code = "internal" // a defect of ours, whole in the log

	BadRequest        Code = "bad_request"        // not JSON, or JSON of the wrong shape
	UnknownField      Code = "unknown_field"      // a field that this entry point doesn't take
	BadField          Code = "bad_field"          // a field with a value of the wrong shape
	Unauthorized      Code = "unauthorized"       // no token, or one that we don't know
	Forbidden         Code = "forbidden"          // a token or user without that right
	NotFound          Code = "not_found"          // no such entry point
	MethodNotAllowed  Code = "method_not_allowed" // the entry point exists, with another method
	TooLarge          Code = "too_large"          // a body beyond the limit
	UnsupportedType   Code = "unsupported_type"   // a content type other than application/json
	UnknownRequest    Code = "unknown_request"    // no such request in this database
	DigestMismatch    Code = "digest_mismatch"    // the digest given isn't the source's
	PreviousRequired  Code = "previous_required"  // a failed receipt has to be named first
	PreviousNotFailed Code = "previous_not_failed"
	NotConfigured     Code = "not_configured"
	InstanceMismatch  Code = "instance_mismatch"
	UnknownRevision   Code = "unknown_revision"
	AcceptUntilPassed Code = "accept_until_passed"
	VerificationStale Code = "verification_stale"
	NotWritable       Code = "not_writable" // receipts can't be written; nothing was started
	Starting          Code = "starting"
	Deaf              Code = "deaf"        // no way to learn answers; nothing was started
	Usage             Code = "usage"       // a command line that can't be understood
	Unreachable       Code = "unreachable" // masterd doesn't answer on its socket
	BadConfig         Code = "bad_config"  // masterd's configuration can't be used
	UnknownToken      Code = "unknown_token"
)

// Codes of reconcile: nothing was settled.
const (
	NotUncertain  Code = "not_uncertain"  // the receipt isn't uncertain (any more)
	JobRunning    Code = "job_running"    // the job, or a process it left, still runs or may still start
	OutcomeProved Code = "outcome_proved" // the ledger proves another outcome, which was adopted
	NotConfirmed  Code = "not_confirmed"  // the target's name was not given as confirmation
	NotReplaced   Code = "not_replaced"   // server_gone, and no other instance is adopted
	InstanceTaken Code = "instance_taken" // adopt, and the instance is recorded for another target
)

// Codes of a receipt database that masterd doesn't open, or doesn't create.
const (
	DatabaseMissing Code = "database_missing"
	DatabaseExists  Code = "database_exists"  // init beside an existing one
	DatabaseLocked  Code = "database_locked"  // another masterd has it open
	DatabaseDamaged Code = "database_damaged" // SQLite's own check, or ours, found it broken
	DatabaseForeign Code = "database_foreign" // a file that isn't masterd's
	DatabaseNewer   Code = "database_newer"   // written by a newer masterd
	DatabaseOlder   Code = "database_older"   // too old to be brought up to date
	DatabaseUnsafe  Code = "database_unsafe"  // opened, but it wouldn't keep what it promises
	// DatabaseRolledBack: an older copy than what this host has seen.
	DatabaseRolledBack Code = "database_rolled_back"
)

// Codes of the state language: the source was refused (HTTP 422).
const (
	SourceTooLarge     Code = "source_too_large"
	SourceEncoding     Code = "source_encoding" // invalid UTF-8 or control characters
	YAMLSyntax         Code = "yaml_syntax"
	SourceEmpty        Code = "source_empty"
	TooManyIDs         Code = "too_many_ids"
	TooDeep            Code = "too_deep"
	TooManyValues      Code = "too_many_values"
	Jinja              Code = "jinja"
	RendererDirective  Code = "renderer_directive"
	YAMLDirective      Code = "yaml_directive"
	SeveralDocuments   Code = "several_documents"
	Anchor             Code = "anchor"
	Alias              Code = "alias"
	MergeKey           Code = "merge_key"
	Tag                Code = "tag"
	DuplicateKey       Code = "duplicate_key"
	DuplicateArgument  Code = "duplicate_argument"
	DuplicateFunction  Code = "duplicate_function"
	SeveralFunctions   Code = "several_functions" // of one module under one ID
	ReservedID         Code = "reserved_id"       // include, extend, exclude, __x
	BadID              Code = "bad_id"
	BadBody            Code = "bad_body"
	BadFunction        Code = "bad_function"
	BadArgument        Code = "bad_argument"
	ReservedArgument   Code = "reserved_argument"
	BadScalar          Code = "bad_scalar"
	BadKey             Code = "bad_key"
	BadRequisite       Code = "bad_requisite"
	BadName            Code = "bad_name"
	TooLargeCanonical  Code = "too_large_canonical"
	UnsupportedElement Code = "unsupported_element"

	// Warnings: they refuse nothing.
	LooksSecret       Code = "looks_secret"
	DanglingRequisite Code = "dangling_requisite"
)

// Codes of a receipt that ended failed before anything was published to start
// it: 0 of 1 preflight checks passed.
const (
	TargetUnknown     Code = "target_unknown"
	TargetBusy        Code = "target_busy"
	TargetQuarantined Code = "target_quarantined"
	StartWindowPassed Code = "start_window_passed"
	ExecutorSilent    Code = "executor_silent"
	ExecutorOutdated  Code = "executor_outdated"
	KeyChanged        Code = "key_changed"
	LedgerChanged     Code = "ledger_changed"
	InstanceDiffers   Code = "instance_differs"
	DuplicateTarget   Code = "duplicate_target"
	RecordUnfinished  Code = "record_unfinished"
	PillarError       Code = "pillar_error"
	StateRunning      Code = "state_running"
	MinionUnsupported Code = "minion_unsupported"
	LedgerUnwritable  Code = "ledger_unwritable"
	PreviousSettled   Code = "previous_settled"
	EpochEnded        Code = "epoch_ended"      // it waited when the database was restored
	RequestConflict   Code = "request_conflict" // also the 409 for another body under one UUID
)

// Codes of a receipt that ended failed: 1 of 1 preflight checks passed.
const (
	StateFailed                Code = "state_failed"
	NotAllAccounted            Code = "not_all_accounted"
	BadReturn                  Code = "bad_return"
	NotSent                    Code = "not_sent"
	NeverBegan                 Code = "never_began"
	NeverStarted               Code = "never_started"
	SettledFailed              Code = "settled_failed"
	StartRefusedTicket         Code = "start_refused_ticket"
	StartRefusedLocked         Code = "start_refused_locked"
	StartRefusedDigest         Code = "start_refused_digest"
	StartRefusedStateRunning   Code = "start_refused_state_running"
	StartRefusedPluginMismatch Code = "start_refused_plugin_mismatch"
)

// Codes of a receipt that is uncertain: its target is quarantined.
const (
	Interrupted  Code = "interrupted"
	StillRunning Code = "still_running"
	LedgerAbsent Code = "ledger_absent"
	NoAnswer     Code = "no_answer"
)
