package exchange

// Hint says to people what a silence may mean and what to do. It is made of
// fixed sentences: nothing of what a minion said is in it.
func Hint(s Silence) string {
	switch s {
	case SilenceUnavailable:
		return "the minion has no oduflow module: offer _modules/oduflow.py on the file server and run saltutil.sync_modules"
	case SilenceBlackout:
		return "the minion is in blackout: it runs nothing until its pillar lifts that"
	case SilenceRejected:
		return "the minion's executor refused masterd's message: does it pin this masterd's public key?"
	case SilenceNoExecutor:
		return "the minion has the oduflow module but couldn't run minion-executor: is the package installed there, whole and executable?"
	case SilenceUnverified:
		return "something answered that isn't this minion's executor: look at the minion and at who else may return for it"
	case SilenceUnpublished:
		return "the Salt master sent nothing: is the minion's key accepted, and masterd's user in publisher_acl?"
	case SilenceNoListener:
		return "the Salt master's request channel couldn't be used: is salt-master running?"
	case SilenceSealing:
		return "the minion's accepted key can't be sealed to: it must be RSA of at least 2048 bits"
	case SilenceNothing:
		return "no answer at all: is the minion running and connected to this master?"
	}
	return ""
}
