package redis

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/lease"
)

// Pure functions that read what a server sent. They accept nothing that the scripts do not write.

// handover is a lease that was handed to a waiter.
type handover struct {
	owner string
	token lease.Token
	at    int64         // µs of server time at which it was granted
	ttl   time.Duration // counted from at
}

func (h *handover) expiresAt() time.Time { return time.UnixMicro(h.at).Add(h.ttl) }

// taken is the reply of acquire and wait.
type taken struct {
	granted   bool
	token     lease.Token
	expiresAt time.Time
	holder    lease.Holder // if not granted
	now       int64        // µs of server time; wait only
	fresh     bool         // wait only: places of this process may be gone
}

func readTaken(v any) (taken, error) {
	f := fieldsOf(v)
	switch {
	case f.int(0) == 1 && f.len() == 3:
		t := taken{granted: true, token: f.token(1), expiresAt: time.UnixMilli(f.int(2))}
		return t, f.error(v)
	case f.int(0) == 0 && (f.len() == 4 || f.len() == 6):
		t := taken{holder: f.holder(1)}
		if f.len() == 6 {
			t.now, t.fresh = f.int(4), f.int(5) == 1
		}
		return t, f.error(v)
	}
	return taken{}, replyError(v)
}

// polled is the reply of poll.
type polled struct {
	now       int64 // µs of server time
	allLost   bool  // places of this process may be gone
	firstLost bool  // the one who has waited longest has no place
	held      bool
	holder    lease.Holder
	grant     *handover // the holder, if it was handed the name in this process; its ttl is what is left now
}

func readPolled(v any) (polled, error) {
	f := fieldsOf(v)
	if f.len() != 5 && f.len() != 6 {
		return polled{}, replyError(v)
	}
	p := polled{now: f.int(0), allLost: f.int(1) == 1, firstLost: f.int(1) == 2, holder: f.holder(2), held: f.int(3) != -2}
	if f.len() == 6 {
		p.grant = &handover{owner: f.string(5), token: f.token(2), at: p.now, ttl: p.holder.Remaining}
	}
	return p, f.error(v)
}

// readReleased reads the reply of release and withdraw. The handover is nil if none rides on it.
func readReleased(v any) (*handover, error) {
	f := fieldsOf(v)
	switch code := f.int(0); {
	case code == 1 && f.len() == 1:
		return nil, f.error(v)
	case code == 1 && f.len() == 5:
		h := &handover{owner: f.string(1), token: f.token(2), at: f.int(3), ttl: f.millis(4)}
		if err := f.error(v); err != nil {
			return nil, err
		}
		return h, nil
	case code == 0 && f.len() == 1 && !f.bad:
		return nil, lease.ErrMissing
	case code == -1 && f.len() == 1:
		return nil, lease.ErrTaken
	}
	return nil, replyError(v)
}

// readRenewed reads the reply of renew.
func readRenewed(v any) (expiresAt time.Time, err error) {
	ms, ok := v.(int64)
	switch {
	case !ok || ms < -1:
		return time.Time{}, replyError(v)
	case ms == 0:
		return time.Time{}, lease.ErrMissing
	case ms == -1:
		return time.Time{}, lease.ErrTaken
	}
	return time.UnixMilli(ms), nil
}

// fields are the elements of a reply. A wrong type is remembered, and is an error at the end.
type fields struct {
	elems []any
	bad   bool
}

func fieldsOf(v any) fields {
	elems, ok := v.([]any)
	return fields{elems: elems, bad: !ok}
}

func (f *fields) len() int { return len(f.elems) }

func (f *fields) int(i int) int64 {
	if i < len(f.elems) {
		if n, ok := f.elems[i].(int64); ok {
			return n
		}
	}
	f.bad = true
	return 0
}

func (f *fields) string(i int) string {
	if i < len(f.elems) {
		if s, ok := f.elems[i].(string); ok {
			return s
		}
	}
	f.bad = true
	return ""
}

func (f *fields) millis(i int) time.Duration { return time.Duration(f.int(i)) * time.Millisecond }

func (f *fields) token(i int) lease.Token {
	n := f.int(i)
	if n < 1 || lease.Token(n) > lease.MaxToken {
		f.bad = true
		return 0
	}
	return lease.Token(n)
}

// holder reads token, remaining time and label, from i on. The record may be none of ours, so its token and its time may be
// anything; both are hints.
func (f *fields) holder(i int) lease.Holder {
	h := lease.Holder{Label: f.string(i + 2)}
	if n := f.int(i); n > 0 && lease.Token(n) <= lease.MaxToken {
		h.Token = lease.Token(n)
	}
	if ms := f.int(i + 1); ms >= 0 { // less says that it does not expire
		h.Remaining = time.Duration(min(max(ms, 1), lease.MaxTTL.Milliseconds())) * time.Millisecond
	}
	return h
}

func (f *fields) error(v any) error {
	if f.bad {
		return replyError(v)
	}
	return nil
}

// readMessage reads the news of a handover: "<token> <owner> <server µs> <ttl ms> <record key>". It reports false for
// anything else: whoever may publish to the channel can send whatever they like.
func readMessage(payload string) (key string, h handover, ok bool) {
	parts := strings.SplitN(payload, " ", 5)
	if len(parts) != 5 || parts[1] == "" || parts[4] == "" {
		return "", handover{}, false
	}
	token, err1 := strconv.ParseUint(parts[0], 10, 64)
	at, err2 := strconv.ParseInt(parts[2], 10, 64)
	ttl, err3 := strconv.ParseInt(parts[3], 10, 64)
	switch {
	case err1 != nil || err2 != nil || err3 != nil:
	case token < 1 || lease.Token(token) > lease.MaxToken:
	case at < 1 || at > int64(lease.MaxToken):
	case ttl < 1 || ttl > lease.MaxClaimTTL.Milliseconds():
	default:
		h = handover{owner: parts[1], token: lease.Token(token), at: at, ttl: time.Duration(ttl) * time.Millisecond}
		return parts[4], h, true
	}
	return "", handover{}, false
}
