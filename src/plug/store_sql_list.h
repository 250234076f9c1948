/* Every statement of the SQL stores, one row each: SQL(NAME, text). Prepared once per connection, on first use. One text serves all engines:
 * parameters are ?N; "user" is quoted, being a word of the language; sums are cast, being more than integers elsewhere; where they differ by
 * a word, it is a macro of the engine's that includes this: SQL_GREATEST, SQL_INDEXED(index). */
SQL(SAVE, "SAVEPOINT job")
SQL(SAVE_UNDO, "ROLLBACK TO job")
SQL(SAVE_RELEASE, "RELEASE job")

SQL(TRANSFER_INSERT,
    "INSERT INTO transfers (id, \"user\", batch, source, manifest_digest, manifest_crc32c, digest, chunk_bytes, "
    "pack_bytes,"
    " state, version, is_retryable, priority, reason, client_addr, created_us, updated_us, completed_us, copies, seal)"
    " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,'distributing',0,?10,?11,?12,?13,?14,?15,0,?16,?17) RETURNING num")
SQL(TRANSFER_PLANNED,
    "UPDATE transfers SET state='uploading', version=1, entry_count=?2, file_count=?3, object_count=?4, chunk_count=?5,"
    " total_bytes=?6, pending_count=?7, stored_count=?8, digest_failed_count=?9, lost_count=?10, merged_count=?11,"
    " stored_bytes=?12, updated_us=?13 WHERE num=?1")
SQL(TRANSFER_BRIEF,
    "SELECT num, state, version, digest, \"user\", chunk_count, stored_count, merged_count, copies, copied_count,"
    " is_copies_waived FROM transfers WHERE id=?1")
SQL(TRANSFER_MOVE, "UPDATE transfers SET state=?2, version=version+1, reason=?3, is_retryable=?4, updated_us=?5,"
		   " completed_us=CASE WHEN ?2='completed' THEN ?5 ELSE completed_us END,"
		   " is_copies_waived=CASE WHEN ?2='uploading' THEN 0 ELSE is_copies_waived END WHERE num=?1")
SQL(TRANSFER_MERGED, "UPDATE transfers SET merged_count=merged_count+stored_count, stored_count=0 WHERE num=?1")
SQL(TRANSFER_NOTE, "UPDATE transfers SET reason=?2 WHERE id=?1")
SQL(TRANSFER_ADD, "UPDATE transfers SET pending_count=pending_count+?2, stored_count=stored_count+?3,"
		  " digest_failed_count=digest_failed_count+?4, lost_count=lost_count+?5, merged_count=merged_count+?6,"
		  " stored_bytes=stored_bytes+?7, updated_us=" SQL_GREATEST "(updated_us,?8) WHERE num=?1")
SQL(COPIES_ADD, "UPDATE transfers SET copied_count=copied_count+?2, copied_bytes=copied_bytes+?3,"
		" updated_us=" SQL_GREATEST "(updated_us,?4) WHERE num=?1")
SQL(COPIES_SET, "UPDATE transfers SET copies=?2, is_copies_waived=?3, version=version+1 WHERE num=?1")
#define TRANSFER_COLUMNS                                                                                     \
	"id, \"user\", batch, source, manifest_digest, manifest_crc32c, digest, chunk_bytes, pack_bytes, "   \
	"entry_count, "                                                                                      \
	"file_count,"                                                                                        \
	" object_count, chunk_count, total_bytes, stored_count+merged_count, stored_bytes, state, version, " \
	"is_retryable, priority,"                                                                            \
	" reason, client_addr, created_us, updated_us, completed_us, copies, copied_count, copied_bytes, "   \
	"is_copies_waived, seal"
SQL(TRANSFER_GET, "SELECT " TRANSFER_COLUMNS " FROM transfers WHERE id=?1")
SQL(TRANSFER_BY_BATCH,
    "SELECT " TRANSFER_COLUMNS " FROM transfers WHERE batch=?1 AND state<>'failed' ORDER BY num DESC LIMIT 1")
#define TRANSFER_WANTED                                                                                \
	"CASE state WHEN 'created' THEN ?1&1 WHEN 'distributing' THEN ?1&2 WHEN 'uploading' THEN ?1&4" \
	" WHEN 'merging' THEN ?1&8 WHEN 'completed' THEN ?1&16 WHEN 'failed' THEN ?1&32 ELSE 1 END <> 0"
SQL(TRANSFER_LIST, "SELECT " TRANSFER_COLUMNS " FROM transfers WHERE " TRANSFER_WANTED " ORDER BY num DESC LIMIT ?2")
SQL(TRANSFER_LIST_USER,
    "SELECT " TRANSFER_COLUMNS " FROM transfers WHERE " TRANSFER_WANTED " AND \"user\"=?3 ORDER BY num DESC LIMIT ?2")
#undef TRANSFER_WANTED
/* Each by an index of its own, which holds only such rows. Created and distributing are seen by nobody: a plan commits as uploading. */
SQL(TRANSFER_IDLE, "SELECT " TRANSFER_COLUMNS " FROM transfers" SQL_INDEXED(
			   transfers_idle) " WHERE state='uploading' AND updated_us<?1 ORDER BY updated_us LIMIT ?2")
SQL(TRANSFER_UNCLEANED,
    "SELECT " TRANSFER_COLUMNS " FROM transfers" SQL_INDEXED(
	    transfers_uncleaned) " WHERE state='failed' AND stored_count>0 AND id>?1 ORDER BY id LIMIT ?2")
SQL(TRANSFER_COUNTS,
    "SELECT pending_count, stored_count, digest_failed_count, lost_count, merged_count FROM transfers WHERE id=?1")
SQL(TRANSFER_NUM, "SELECT num FROM transfers WHERE id=?1")

/* As many rows in one statement as the engine says (row_count). */
SQL(ENTRIES_INSERT, SQL_INSERT_ROWS("entries (transfer, seq, type, mode, mtime_ns, size_bytes, path, target, file_id, "
				    "object_offset, digest)",
				    "?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11", "(?,?,?,?,?,?,?,?,?,?,?)"))
SQL(ENTRY_PAGE,
    "SELECT seq, type, mode, mtime_ns, size_bytes, path, target, file_id, object_offset, digest FROM entries"
    " WHERE transfer=?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq LIMIT ?4")
/* Numbered as the insert, so that one binding serves both. */
SQL(ENTRY_REVISE, "UPDATE entries SET mode=?4, mtime_ns=?5, size_bytes=?6, target=?8, file_id=?9, object_offset=?10,"
		  " digest=?11 WHERE transfer=?1 AND seq=?2 AND type=?3 AND path=?7")
SQL(ENTRY_BIND, "UPDATE entries SET digest=?3 WHERE transfer=?1 AND seq=?2 AND type='F' RETURNING seq")

SQL(OBJECT_INSERT, "INSERT INTO objects (transfer, file_id, is_pack, first_seq, last_seq, size_bytes, chunk_count) "
		   "VALUES (?1,?2,?3,?4,?5,?6,?7)")
SQL(OBJECT_PAGE, "SELECT file_id, is_pack, first_seq, last_seq, size_bytes, chunk_count FROM objects"
		 " WHERE transfer=?1 AND file_id>?2 ORDER BY file_id LIMIT ?3")

SQL(CHUNKS_INSERT,
    SQL_INSERT_ROWS("chunks (transfer, file_id, chunk_index, size_bytes, state, target_node, actual_node, "
		    "digest, updated_us)",
		    "?1,?2,?3,?4,?5,?6,?7,?8,?9", "(?,?,?,?,?,?,?,?,?)"))
SQL(CHUNK_GET, "SELECT size_bytes, state, digest, actual_node, copy_node FROM chunks WHERE transfer=?1 AND file_id=?2 "
	       "AND chunk_index=?3")
SQL(CHUNK_STORED, "UPDATE chunks SET state='stored', actual_node=?4, digest=?5, updated_us=?6"
		  " WHERE transfer=?1 AND file_id=?2 AND chunk_index=?3")
SQL(CHUNK_COPIED, "UPDATE chunks SET copy_node=?4, updated_us=?5 WHERE transfer=?1 AND file_id=?2 AND chunk_index=?3")
/* The row is not as it was any more, whatever the clocks of two nodes say. */
SQL(CHUNK_SEEN, "UPDATE chunks SET updated_us=CASE WHEN updated_us<?4 THEN ?4"
		" WHEN updated_us<9223372036854775807 THEN updated_us+1 ELSE updated_us-1 END"
		" WHERE transfer=?1 AND file_id=?2 AND chunk_index=?3")
SQL(CHUNK_FAILED,
    "UPDATE chunks SET state='digest_failed', updated_us=?4 WHERE transfer=?1 AND file_id=?2 AND chunk_index=?3")
/* ?4: a mask of states. A word that is none is given, so that the reader can refuse it. */
#define CHUNK_WANTED                                                                                 \
	"CASE state WHEN 'pending' THEN ?4&1 WHEN 'stored' THEN ?4&2 WHEN 'digest_failed' THEN ?4&4" \
	" WHEN 'lost' THEN ?4&8 WHEN 'merged' THEN ?4&16 ELSE 1 END <> 0"
SQL(CHUNK_PAGE, "SELECT file_id, chunk_index, size_bytes, state, target_node, actual_node, digest, updated_us, "
		"copy_node FROM chunks"
		" WHERE transfer=?1 AND (file_id, chunk_index) > (?2, ?3) AND " CHUNK_WANTED
		" ORDER BY file_id, chunk_index LIMIT ?5")
#undef CHUNK_WANTED
SQL(CHUNK_MERGE_ALL, "UPDATE chunks SET state='merged', updated_us=?2 WHERE transfer=?1 AND state='stored'")
/* One object, or all: the range of file ids is a parameter, so that the primary key serves both. */
#define REOPEN_WHERE \
	" WHERE transfer=?1 AND file_id BETWEEN ?2 AND ?3 AND state='stored' AND (?4 IS NULL OR actual_node=?4)"
SQL(CHUNK_REOPEN_SUM, "SELECT count(*), CAST(coalesce(sum(size_bytes),0) AS BIGINT) FROM chunks" REOPEN_WHERE)
SQL(CHUNK_REOPEN, "UPDATE chunks SET state=?5, actual_node='', digest='', copy_node='', updated_us=?6" REOPEN_WHERE)
#undef REOPEN_WHERE
/* Those that have a copy and of which the node holds one of the two. */
#define COPIES_WHERE                                                                                     \
	" WHERE transfer=?1 AND file_id BETWEEN ?2 AND ?3 AND state='stored' AND copy_node<>'' AND (?4 " \
	"IS NULL OR ?4 IN (actual_node, copy_node))"
SQL(COPIES_SUM,
    "SELECT count(*), CAST(coalesce(sum(size_bytes),0) AS BIGINT), count(*) FILTER (WHERE actual_node=?4) FROM "
    "chunks" COPIES_WHERE)
SQL(COPIES_DROP, "UPDATE chunks SET actual_node=CASE WHEN actual_node=?4 THEN copy_node ELSE actual_node END,"
		 " copy_node='', updated_us=?5" COPIES_WHERE)
#undef COPIES_WHERE
/* What is stored as it was read, and no more on one of its nodes: lost, or kept by the other copy. */
SQL(CHUNK_LOSE,
    "UPDATE chunks SET state=?8, actual_node=?9, digest=?10, copy_node='', updated_us=?11 WHERE transfer=?1"
    " AND file_id=?2 AND chunk_index=?3 AND state='stored' AND actual_node=?4 AND copy_node=?5 AND digest=?6"
    " AND updated_us=?7")
#undef TRANSFER_COLUMNS

SQL(REVISE_GET, "SELECT num, state, version, entry_count, object_count, chunk_count,"
		" " SQL_GREATEST "(last_file_id, (SELECT coalesce(max(file_id),0) FROM objects WHERE transfer=num))"
		" FROM transfers WHERE id=?1")
SQL(REVISE_SUM, "SELECT state, count(*), CAST(sum(size_bytes) AS BIGINT) FROM chunks WHERE transfer=?1 AND file_id=?2 "
		"GROUP BY state")
SQL(REVISE_DROP_CHUNKS, "DELETE FROM chunks WHERE transfer=?1 AND file_id=?2")
SQL(REVISE_DROP_OBJECT, "DELETE FROM objects WHERE transfer=?1 AND file_id=?2")
SQL(REVISE_TOTALS,
    "UPDATE transfers SET version=version+1, manifest_digest=?2, manifest_crc32c=?3, object_count=?4, chunk_count=?5,"
    " total_bytes=?6, pending_count=pending_count+?7, stored_count=stored_count+?8,"
    " digest_failed_count=digest_failed_count+?9, lost_count=lost_count+?10, merged_count=merged_count+?11,"
    " stored_bytes=stored_bytes+?12, last_file_id=?13, updated_us=" SQL_GREATEST "(updated_us,?14) WHERE num=?1")

#define AUDIT_COLUMNS                                                                                                  \
	"id, at_us, kind, transfer_id, \"user\", node_id, outcome, detail, file_id, chunk_index, result, size_bytes, " \
	"algorithm, digest, node_addr, client_addr, request_id, user_agent, disk_path, started_us, finished_us, "      \
	"prev_hash, hash"
#define AUDIT_WHERE                                                                                   \
	" AND (?4 IS NULL OR kind=?4) AND (?5 IS NULL OR \"user\"=?5) AND (?6 IS NULL OR node_id=?6)" \
	" AND (?7 IS NULL OR outcome=?7) AND at_us>=?8 AND at_us<=?9"
SQL(AUDIT_INSERT, "INSERT INTO audit (" AUDIT_COLUMNS ") VALUES"
		  " (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23)")
SQL(AUDIT_NEXT, "SELECT " AUDIT_COLUMNS " FROM audit WHERE id>?1 ORDER BY id LIMIT 1")
SQL(AUDIT_LINK, "UPDATE audit SET prev_hash=?2, hash=?3 WHERE id=?1")
SQL(AUDIT_PAGE, "SELECT " AUDIT_COLUMNS " FROM audit WHERE id>?1 AND id<=?2" AUDIT_WHERE " ORDER BY id LIMIT ?3")
/* The rows of one transfer lie together, those of an object and of a chunk too. Ids begin at 1: what is below, somebody put in. */
SQL(AUDIT_OF_TRANSFER,
    "SELECT " AUDIT_COLUMNS " FROM audit WHERE transfer_id=?10 AND (file_id, chunk_index, id)>(?11,?12,?1)"
    " AND (file_id, chunk_index)<=(?13,?14) AND id BETWEEN 1 AND ?2" AUDIT_WHERE
    " ORDER BY file_id, chunk_index, id LIMIT ?3")
SQL(AUDIT_HEAD, "SELECT last_id, last_hash, anchor_id, anchor_hash,"
		" (SELECT max(id) FROM audit) FROM audit_head")
SQL(AUDIT_HEAD_SET, "UPDATE audit_head SET last_id=?1, last_hash=?2")
SQL(AUDIT_ANCHOR_SET, "UPDATE audit_head SET anchor_id=?1, anchor_hash=?2")
SQL(AUDIT_HASH, "SELECT hash FROM audit WHERE id=?1")
/* The anchor stands already: the trigger keeps all rows behind it. */
SQL(AUDIT_CUT, "DELETE FROM audit WHERE id<=?1")
#undef AUDIT_WHERE
#undef AUDIT_COLUMNS
SQL(NODE_SAVE, "INSERT INTO nodes (id, addr, incarnation, weight_milli, domain, seen_us) VALUES (?1,?2,?3,?4,?5,?6)"
	       " ON CONFLICT (id) DO UPDATE SET addr=excluded.addr, incarnation=excluded.incarnation,"
	       " weight_milli=excluded.weight_milli, domain=excluded.domain, seen_us=excluded.seen_us")
SQL(NODE_LIST, "SELECT id, addr, incarnation, weight_milli, domain, seen_us FROM nodes ORDER BY id")
SQL(ORDER_SAVE, "INSERT INTO node_orders (id, word, weight_milli, updated_us) VALUES (?1,?2,?3,?4)"
		" ON CONFLICT (id) DO UPDATE SET word=excluded.word, weight_milli=excluded.weight_milli,"
		" updated_us=excluded.updated_us")
SQL(ORDER_LIST, "SELECT id, word, weight_milli FROM node_orders ORDER BY id")
/* The next open transfer of which the node has a chunk. */
SQL(ORDER_HOLDS, "SELECT num, id FROM transfers WHERE num>?1 AND state='uploading' AND EXISTS"
		 " (SELECT 1 FROM chunks WHERE transfer=num AND state='stored' AND ?2 IN (actual_node, copy_node)) "
		 "ORDER BY num LIMIT 1")
