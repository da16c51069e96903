/* One archive job, two workers, one volume, one database, and everything that may go wrong.
 *
 * The model is of the rules, not of the code: claim, check of the position before, read, temporary
 * file, last look at the claim, link, proof, fsync, settle, look back. README.md beside this file says
 * what is left out. Each worker is a slot: when its tick is over it may begin another one.
 *
 * Time. There is no clock. A lease ends by a step of its own, and that step may be taken only once the
 * holder can do nothing more, because its tick is over or its process is dead: that is what "deadline
 * shorter than timeout shorter than lease" buys. The one exception is a process that was frozen and
 * missed its own deadline, a zombie: its lease may end under it, after which it may still take every
 * step it had left, at any speed. A delay (backoff, the schedule) is a step not yet taken.
 *
 * Faults are bounded by the numbers below; each -D of a fault's number or of a broken rule makes
 * another model. Nothing else is bounded: within the numbers every order of steps is explored.
 */

#ifndef ROWS
#define ROWS 2 /* roots in the window; the last may be gone from the source at any read */
#endif
#ifndef CRASHES
#define CRASHES 0 /* a worker's process dies */
#endif
#ifndef ZOMBIES
#define ZOMBIES 0 /* a lease ends under a frozen process */
#endif
#ifndef LOCKS_LOST
#define LOCKS_LOST 0 /* the server forgets a lock, its holder goes on */
#endif
#ifndef ERRORS
#define ERRORS 0 /* source or volume fail once and say so; whether the name was made is open */
#endif
#ifndef SILENCES
#define SILENCES 0 /* a write is lost, or nobody waits for its answer any longer */
#endif
#ifndef FAILOVERS
#define FAILOVERS 0 /* a standby takes over that lacks any number of the last transactions */
#endif
#ifndef POWER_CUTS
#define POWER_CUTS 0 /* every process dies and names that no fsync covered are gone */
#endif
#ifndef PAUSES
#define PAUSES 0 /* an operator pauses; somebody always resumes */
#endif
#ifndef ABANDONS
#define ABANDONS 0
#endif
#ifndef RETRIES
#define RETRIES 0
#endif
#ifndef FOREIGN_FILES
#define FOREIGN_FILES 0 /* a file that is not ours lies where the next batch belongs */
#endif
#ifndef RESTORES
#define RESTORES 0 /* the volume comes back from a backup that lacks the newest recorded batch */
#endif

mtype:job = { PENDING, RUNNING, PAUSED, FAILED, SUCCEEDED, ABANDONED };
mtype:step = { IDLE, CLEAR, CLAIM, TAKE, READ, RESERVE, LINK, PROVE, SETTLE, LOOK };
mtype:gift = { NOTHING, UNIT, SEAL_ONLY, PASSING, VERDICT };

/* A file is its content, and its content is its digest: who wrote it, after which row, up to which
 * row, and whether that was the last. 0 is no file, and as a tail the digest of the manifest. */
#define DIGEST(who, after, last, final) (1 + (last) + 4 * (after) + 16 * (who) + 64 * (final))
#define LAST(digest) (((digest) - 1) & 3)
#define AFTER(digest) ((((digest) - 1) >> 2) & 3)
#define FINAL(digest) ((((digest) - 1) >> 6) & 1)
/* Somebody else's: it names the right file before it, and goes on after another row. */
#define FOREIGN 141
#define ENDS(k) (file[k] != 0 && file[k] != FOREIGN && FINAL(file[k]))

/* The database: one row. */
mtype:job state = PENDING;
byte owner; /* worker + 1, 0 for none. A real owner is random: no two claims share one. */
byte generation, seq, tail, cursor;
bit lease;   /* a lease was taken and has not ended; what is not RUNNING keeps it as its due time */
byte lessee; /* who took it, for the clock alone */

/* The volume. Position 1 is the first batch; names before and after are there to be looked at. */
byte file[5], prev[5], inode[5];
bit durable[5];
byte sealed; /* only in the variant with a seal: 1 + the number of batches before it */
byte temp[2]; /* inode of each worker's temporary file while it has a name */
byte lock;

/* The workers: where they stand and what they believe. */
mtype:step step[2] = IDLE;
mtype:gift giving[2] = NOTHING; /* with what the claim is to be given back */
bit in_flight[2];               /* the statement that does it is under way and may still be carried out */
byte my_generation[2], my_seq[2], my_tail[2], my_cursor[2];
byte page[2], my_inode[2]; /* content and inode of the temporary file that was written */
byte result[2];            /* digest of the file that was proven */
bit adopted[2];
byte asked[2]; /* how often the row was looked at and the statement sent again */

/* What only the promises and the clock look at. */
bit zombie[2]; /* frozen past its lease, or its claim was lost with the primary */
bit valid[2];  /* the claim is the latest word of the database on this job */
byte accepted[5]; /* what was ever settled at a position, failovers or not */
bit began;        /* the workers are alike, so the first tick may as well be worker 0's */
bit damaged;      /* somebody spoiled the volume: the job may be left FAILED */

/* The standby as it was when the last transaction reached it, while a failover is to come. */
bit lagging;
mtype:job old_state = PENDING;
byte old_owner, old_generation, old_seq, old_tail, old_cursor, old_lessee;
bit old_lease;
bit old_valid[2];

byte crashes = CRASHES, zombies = ZOMBIES, locks_lost = LOCKS_LOST, errors = ERRORS;
byte silences = SILENCES, failovers = FAILOVERS, power_cuts = POWER_CUTS;
byte pauses = PAUSES, abandons = ABANDONS, retries = RETRIES;
byte foreign_files = FOREIGN_FILES, restores = RESTORES;

/* The promises; a broken one stays in the output of the checker under its name. */
hidden byte two_workers, settled_by_stale, position_skipped, recorded_without_file;
hidden byte two_results, rows_lost_or_doubled, built_on_a_gap, batch_after_end, stuck;
hidden byte n, last;

#define CLOSED (state == SUCCEEDED || state == ABANDONED)
#define HAS_CLAIM(p) (step[p] != IDLE && step[p] != CLEAR && step[p] != CLAIM && step[p] != TAKE)
#define LIVE(p) (HAS_CLAIM(p) && !zombie[p])
/* Who has handed its claim in, and only asks what became of it, is at the unit no more. */
#define AT_WORK(p) (LIVE(p) && step[p] != LOOK)
#define LESSEE_LIVE (lessee != 0 && LIVE(lessee - 1))

#ifdef NO_TAKEOVER
#define DUE (state == PENDING && !lease)
#else
#define DUE ((state == PENDING || state == RUNNING) && !lease)
#endif

/* The fence of every later write of the holder. */
#define HELD(p) (owner == p + 1 && generation == my_generation[p] && seq == my_seq[p] && tail == my_tail[p])
#define FENCE(p) (state == RUNNING && lease && HELD(p))

#if defined(NO_FENCE)
#define SETTLE_FENCE(p) (true)
#elif defined(FENCE_GENERATION_ONLY)
#define SETTLE_FENCE(p) (state == RUNNING && lease && generation == my_generation[p])
#elif defined(FENCE_WITHOUT_OWNER)
#define SETTLE_FENCE(p) (state == RUNNING && lease && generation == my_generation[p] && seq == my_seq[p] && tail == my_tail[p])
#elif defined(FENCE_WITHOUT_POSITION)
#define SETTLE_FENCE(p) (state == RUNNING && lease && owner == p + 1 && generation == my_generation[p])
#elif defined(FENCE_WITHOUT_LEASE)
#define SETTLE_FENCE(p) (state == RUNNING && HELD(p))
#else
#define SETTLE_FENCE(p) FENCE(p)
#endif

#ifdef NO_RECHECK
#define RESERVE_FENCE(p) (true)
#else
#define RESERVE_FENCE(p) FENCE(p)
#endif

#ifdef NO_TAIL_CHECK
#define TAIL_WRONG(p) (false)
#else
#define TAIL_WRONG(p) (my_seq[p] > 0 && file[my_seq[p]] != my_tail[p])
#endif

#ifdef ADOPT_WITHOUT_AFTER
#define FITS(p, n) (prev[n] == my_tail[p])
#else
#define FITS(p, n) (prev[n] == my_tail[p] && AFTER(file[n]) == my_cursor[p])
#endif

inline check_position(k) {
	recorded_without_file = !damaged && accepted[k] != 0 && file[k] != accepted[k];
	assert(!recorded_without_file);
	batch_after_end = file[k] != 0 && ((sealed != 0 && k >= sealed) || ENDS(k - 1));
	assert(!batch_after_end)
}

inline check_volume() {
	check_position(1); check_position(2); check_position(3)
}

/* What is no longer looked at is no longer a difference between states. */
inline forget(p) {
	giving[p] = NOTHING; my_generation[p] = 0; my_seq[p] = 0; my_tail[p] = 0; my_cursor[p] = 0;
	page[p] = 0; my_inode[p] = 0; result[p] = 0; adopted[p] = 0; asked[p] = 0;
	valid[p] = 0; old_valid[p] = 0
}

/* A process that ends, however it ends, lets go of its lock. What it sent may still arrive. Nobody looks
 * at a temporary file whose writer is gone: it is as good as removed. */
inline end_process(p) {
	step[p] = IDLE; temp[p] = 0; zombie[p] = 0; old_valid[p] = 0;
	if
	:: lock == p + 1 -> lock = 0
	:: else
	fi;
	if
	:: !in_flight[p] -> forget(p)
	:: else
	fi
}

inline give_back(p, what) {
	temp[p] = 0; my_inode[p] = 0; giving[p] = what; in_flight[p] = 1; step[p] = LOOK;
#ifndef SETTLE_FROM_PAGE
	page[p] = 0;
#endif
	my_cursor[p] = 0
}

inline claim(p) {
	two_workers = AT_WORK(1 - p);
#ifndef DATA_ONLY
	assert(!two_workers);
#endif
	state = RUNNING; owner = p + 1; lessee = p + 1; generation++; lease = 1;
	my_generation[p] = generation; my_seq[p] = seq; my_tail[p] = tail; my_cursor[p] = cursor;
	valid[p] = 1; valid[1 - p] = 0; old_valid[p] = 0;
	step[p] = READ
}

/* One page from one snapshot: so many rows wanted, so many in the window as this snapshot has it. */
inline read(p, size, rows) {
	last = my_cursor[p];
	if
	:: last + size <= rows -> last = last + size
	:: last + size > rows && last < rows -> last = rows
	:: else
	fi;
#ifdef SEAL
	page[p] = DIGEST(p, my_cursor[p], last, 0);
#else
	page[p] = DIGEST(p, my_cursor[p], last, last >= rows);
#endif
	/* A file system gives a number out again as soon as nothing bears it. */
	n = 1;
	do
	:: n == temp[0] || n == temp[1] || n == inode[1] || n == inode[2] || n == inode[3] -> n++
	:: else -> break
	od;
	temp[p] = n; my_inode[p] = n;
	step[p] = RESERVE
}

inline name_it(p) {
	n = my_seq[p] + 1;
	file[n] = page[p]; prev[n] = my_tail[p]; inode[n] = temp[p]; durable[n] = 0;
	result[p] = page[p];
	step[p] = PROVE;
	check_volume()
}

/* link says, then open sees: whatever link answered, the name decides. */
inline link(p) {
	n = my_seq[p] + 1;
	if
#if defined(RENAME)
	:: temp[p] != 0 -> name_it(p)
#endif
#if defined(SEAL)
	:: AFTER(page[p]) == LAST(page[p]) ->
		/* Nothing was left: the end is a file of its own under a name of its own. */
		if
		:: sealed == 0 -> sealed = my_seq[p] + 1
		:: else
		fi;
		check_volume();
		give_back(p, SEAL_ONLY)
	:: AFTER(page[p]) != LAST(page[p]) && temp[p] != 0 && file[n] == 0 -> name_it(p)
#else
	:: temp[p] != 0 && file[n] == 0 -> name_it(p)
#endif
	:: else ->
		if
		:: file[n] == 0 -> give_back(p, PASSING)
		:: file[n] != 0 && inode[n] == my_inode[p] -> result[p] = page[p]; step[p] = PROVE
		:: else ->
#ifdef NO_ADOPTION
			give_back(p, VERDICT)
#else
			adopted[p] = 1; step[p] = PROVE
#endif
		fi
	fi
}

inline prove(p) {
	n = my_seq[p] + 1;
	temp[p] = 0;
	if
	:: adopted[p] && file[n] == 0 -> give_back(p, PASSING)
	:: adopted[p] && file[n] != 0 && !FITS(p, n) -> give_back(p, VERDICT)
	:: else ->
		if
		:: adopted[p] -> result[p] = file[n]
		:: else
		fi;
		my_inode[p] = 0;
#ifndef SETTLE_FROM_PAGE
		page[p] = 0;
#endif
#if defined(ADOPT_WITHOUT_FSYNC)
		durable[n] = durable[n] || !adopted[p];
#elif !defined(NO_FSYNC)
		durable[n] = 1;
#endif
		step[p] = SETTLE
	fi
}

proctype Worker(byte p) {
end_worker:
	do
	/* The lock comes before the claim; under it, what lies in .tmp is an orphan's or a zombie's. */
	:: d_step { step[p] == IDLE && !in_flight[p] && lock == 0 && DUE && (p == 0 || began) -> began = 1; lock = p + 1; step[p] = CLEAR }
	:: d_step { step[p] == CLEAR -> temp[0] = 0; temp[1] = 0; step[p] = CLAIM }
#ifdef CLAIM_IN_TWO
	:: d_step { step[p] == CLAIM && DUE -> step[p] = TAKE }
	:: d_step { step[p] == TAKE -> claim(p) }
#else
	:: d_step { step[p] == CLAIM && DUE -> claim(p) }
#endif
	:: d_step { step[p] == CLAIM && !DUE -> end_process(p) }

	/* The batch before must be the one that was recorded. */
	:: d_step { step[p] == READ && TAIL_WRONG(p) -> give_back(p, VERDICT) }
	/* The name may be there already, and a listing may show it or not. */
	:: d_step { step[p] == READ && !TAIL_WRONG(p) && file[my_seq[p] + 1] != 0 -> adopted[p] = 1; step[p] = PROVE }
	:: d_step { step[p] == READ && !TAIL_WRONG(p) -> read(p, 1, ROWS) }
	:: d_step { step[p] == READ && !TAIL_WRONG(p) -> read(p, 2, ROWS) }
	:: d_step { step[p] == READ && !TAIL_WRONG(p) -> read(p, 1, ROWS - 1) }
	:: d_step { step[p] == READ && !TAIL_WRONG(p) -> read(p, 2, ROWS - 1) }

	/* The last look at the claim before a file gets its name. */
	:: d_step { step[p] == RESERVE && RESERVE_FENCE(p) -> step[p] = LINK }
	:: d_step { step[p] == RESERVE && !RESERVE_FENCE(p) -> end_process(p) }
	:: d_step { step[p] == LINK -> link(p) }
	:: d_step { step[p] == PROVE -> prove(p) }
	:: d_step { step[p] == SETTLE -> give_back(p, UNIT) }

	/* No answer is waited for: what became of the statement is read from the row. Still ours and
	 * nothing under way, it is sent again, a bounded number of times; nobody to ask is a silence, and the lease decides. */
	:: d_step { step[p] == LOOK && !HELD(p) -> end_process(p) }
#ifdef LOOK_FOR_EVER
	:: d_step { step[p] == LOOK && HELD(p) && !in_flight[p] -> in_flight[p] = 1 }
#else
	:: d_step { step[p] == LOOK && HELD(p) && !in_flight[p] && asked[p] < 2 -> asked[p]++; in_flight[p] = 1 }
	:: d_step { step[p] == LOOK && HELD(p) && !in_flight[p] && asked[p] == 2 -> end_process(p) }
#endif
	:: d_step { step[p] == LOOK && silences > 0 -> silences--; end_process(p) }

	:: d_step { errors > 0 && (step[p] == READ || step[p] == LINK || step[p] == PROVE) ->
		errors--; give_back(p, PASSING) }
	:: d_step { crashes > 0 && step[p] != IDLE -> crashes--; end_process(p) }
	od
}

inline settled(p) {
	/* THE COMMIT POINT. */
	settled_by_stale = !valid[p];
#ifndef DATA_ONLY
	assert(!settled_by_stale);
#endif
	if
	:: giving[p] == UNIT ->
		n = my_seq[p] + 1;
		position_skipped = n != seq + 1;
		assert(!position_skipped);
		recorded_without_file = file[n] != result[p];
		assert(!recorded_without_file);
		two_results = accepted[n] != 0 && accepted[n] != result[p];
		assert(!two_results);
		built_on_a_gap = prev[n] != tail || (n > 1 && file[n - 1] != tail);
		assert(!built_on_a_gap);
		rows_lost_or_doubled = AFTER(file[n]) != (n > 1 -> LAST(file[n - 1]) : 0);
		assert(!rows_lost_or_doubled);
		accepted[n] = result[p];
		seq = n; tail = result[p];
#ifdef SETTLE_FROM_PAGE
		cursor = (page[p] != 0 -> LAST(page[p]) : LAST(result[p]));
#else
		cursor = LAST(result[p]);
#endif
		state = (FINAL(result[p]) -> SUCCEEDED : PENDING);
		check_volume()
	:: else ->
		state = SUCCEEDED
	fi;
	owner = 0; lease = 0; lessee = 0; valid[p] = 0
}

inline set_back(p) {
	settled_by_stale = !valid[p];
#ifndef DATA_ONLY
	assert(!settled_by_stale);
#endif
	state = (giving[p] == VERDICT -> FAILED : PENDING);
	owner = 0; lease = 0; lessee = 0; valid[p] = 0
}

inline arrived(p) {
	in_flight[p] = 0;
	if
	:: step[p] == IDLE -> forget(p)
	:: else
	fi
}

/* Carries out what was sent, sooner or later; what is slow enough comes after its sender's end. */
proctype Database(byte p) {
end_database:
	do
	:: d_step { in_flight[p] && (giving[p] == UNIT || giving[p] == SEAL_ONLY) ->
		if
		:: SETTLE_FENCE(p) -> settled(p)
		:: else
		fi;
		arrived(p) }
	:: d_step { in_flight[p] && (giving[p] == PASSING || giving[p] == VERDICT) ->
		if
		:: FENCE(p) -> set_back(p)
		:: else
		fi;
		arrived(p) }
	:: d_step { in_flight[p] && silences > 0 -> silences--; arrived(p) }
	od
}

/* The standby's row may bear an older lease, never one that ends later: a failover does not turn time back. */
inline end_lease() {
	lease = 0; old_lease = 0
}

proctype Clock() {
end_clock:
	do
#ifdef SHORT_LEASE
	:: d_step { lease -> end_lease() }
#else
	:: d_step { lease && !LESSEE_LIVE -> end_lease() }
#endif
	od
}

/* An action moves the generation and leaves the lease that was taken to its end. */
inline act(to) {
	state = to; owner = 0; generation++; valid[0] = 0; valid[1] = 0;
#ifdef ACTION_ENDS_LEASE
	lease = 0;
#endif
}

/* What is paused is resumed some day, by an operator or by the node that finds the cause gone. */
proctype Operator() {
end_operator:
	do
	:: d_step { state == PAUSED -> act(PENDING) }
	od
}

inline arrived_if(p) {
	if
	:: in_flight[p] -> arrived(p)
	:: else
	fi
}

inline fail_over() {
	state = old_state; owner = old_owner; generation = old_generation; seq = old_seq; tail = old_tail;
	cursor = old_cursor; lease = old_lease; lessee = old_lessee;
	valid[0] = old_valid[0]; valid[1] = old_valid[1];
	/* A claim the standby never heard of counts for nothing any more. */
	zombie[0] = zombie[0] || (HAS_CLAIM(0) && !valid[0]);
	zombie[1] = zombie[1] || (HAS_CLAIM(1) && !valid[1]);
	/* Statements under way were on connections to a server that is gone. */
	arrived_if(0); arrived_if(1);
	lagging = 0; old_state = PENDING; old_owner = 0; old_generation = 0; old_seq = 0; old_tail = 0;
	old_cursor = 0; old_lease = 0; old_lessee = 0; old_valid[0] = 0; old_valid[1] = 0
}

inline vanish(k) {
	file[k] = 0; prev[k] = 0; inode[k] = 0; durable[k] = 0
}

inline vanish_unless_durable(k) {
	if
	:: file[k] != 0 && !durable[k] -> vanish(k)
	:: else
	fi
}

/* The last transaction a standby gets is the one before the first it lacks. */
#define WRITE_AT_HAND (in_flight[0] || in_flight[1] || step[0] == CLAIM || step[1] == CLAIM || pauses + abandons > 0 || state == PAUSED)

#define ALL_QUIET (step[0] == IDLE && step[1] == IDLE && !in_flight[0] && !in_flight[1])

/* Nothing here has to happen. */
proctype Faults() {
end_faults:
	do
	:: d_step { zombies > 0 && lease && LESSEE_LIVE -> zombies--; zombie[lessee - 1] = 1; end_lease() }
	:: d_step { locks_lost > 0 && lock != 0 -> locks_lost--; lock = 0 }
	/* The tick of another job on this volume empties .tmp as well. */
	:: d_step { lock == 0 && (temp[0] != 0 || temp[1] != 0) -> temp[0] = 0; temp[1] = 0 }
	:: d_step { power_cuts > 0 && (step[0] != IDLE || step[1] != IDLE) -> power_cuts--;
		end_process(0); end_process(1);
		vanish_unless_durable(1); vanish_unless_durable(2); vanish_unless_durable(3);
		check_volume() }
	/* The last transaction that the standby gets; any number of later ones is lost. */
	:: d_step { failovers > 0 && !lagging && WRITE_AT_HAND -> lagging = 1;
		old_state = state; old_owner = owner; old_generation = generation; old_seq = seq; old_tail = tail;
		old_cursor = cursor; old_lease = lease; old_lessee = lessee;
		old_valid[0] = valid[0]; old_valid[1] = valid[1] }
	:: d_step { lagging -> failovers--; fail_over() }
	:: d_step { pauses > 0 && (state == PENDING || state == RUNNING) -> pauses--; act(PAUSED) }
	:: d_step { abandons > 0 && !CLOSED -> abandons--; act(ABANDONED) }
	:: d_step { retries > 0 && state == FAILED -> retries--; act(PENDING) }
	:: d_step { foreign_files > 0 && !CLOSED && file[seq + 1] == 0 -> foreign_files--; damaged = 1;
		file[seq + 1] = FOREIGN; durable[seq + 1] = 1; inode[seq + 1] = 9; prev[seq + 1] = tail }
	/* Nobody restores a volume under work that is going on. */
	:: d_step { restores > 0 && seq > 0 && file[seq] == tail && !CLOSED && ALL_QUIET ->
		restores--; damaged = 1; vanish(seq); vanish(seq + 1) }
	od
}

#ifndef LIVENESS
/* Where nothing can move any more the job must be closed, or FAILED for a reason. */
proctype Watch() {
	timeout;
	stuck = !CLOSED && !(state == FAILED && damaged);
	assert(!stuck)
}
#endif

init {
	atomic {
		run Worker(0); run Worker(1); run Database(0); run Database(1);
		run Clock(); run Operator(); run Faults();
#ifndef LIVENESS
		run Watch()
#endif
	}
}

#ifdef LIVENESS
ltl settles { <> (state == SUCCEEDED) }
#endif
