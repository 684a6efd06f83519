"""Answers of `jumpmqctl` to unsupported verbs of RabbitMQ's tools: the reason, and the alternative."""

from __future__ import annotations

_ERLANG = "JumpMQ runs on Python, not on Erlang"
_MIRRORS = "there are no mirrored queues, as in RabbitMQ 4.0"
_MEMBERS = (
    "a copy has all queues of a home: `jumpmqctl shrink NODE` removes the copies of a node, "
    "`jumpmqctl set_copies COUNT [--home HOME]` sets the number of copies"
)
_STATUS = "`jumpmqctl list_copies` and `jumpmqctl quorum_status QUEUE` show the copies"
_PLUGINS = "JumpMQ has no plugins: all features are always on"
_FLAGS = "JumpMQ has no feature flags: all features are always on"
_SETTINGS = "secrets come from files or the environment, see `jumpmq config`"
_JOIN = "a node joins a cluster when it is started with `jumpmq serve --cluster NAME --etcd URL`"
_STOP = "stop the broker with `jumpmqctl stop`, and start it with `jumpmq serve`"
_RESET = "stop the broker and start it with an empty --data-dir"
_LOG = "the log is on standard error: with systemd, `journalctl -u jumpmq`"
_DISK = "free disk space is always monitored"
_TLS = "ciphers and versions are those of Python's ssl: `python -c 'import ssl; print(ssl.OPENSSL_VERSION)'`"
_COMPLETION = "`jumpmqctl --install-completion` completes verbs in the shell"
_LOGINS = (
    "`jumpmqctl list_node_auth_attempt_stats` shows the counts of logins by protocol, and refused logins are in the log"
)
_VHOSTS = "a virtual host needs no start of its own"
_NOTHING = "the verb does nothing in RabbitMQ either"

REASONS: dict[str, str] = {
    "activate_free_disk_space_monitoring": _DISK,
    "autocomplete": _COMPLETION,
    "certificates": "`jumpmqctl check_certificate_expiration` fails if a certificate expires soon",
    "change_cluster_node_type": "all nodes keep data on disk",
    "check_if_any_deprecated_features_are_used": _FLAGS,
    "check_if_cluster_has_classic_queue_mirroring_policy": _MIRRORS,
    "check_if_node_is_mirror_sync_critical": _MIRRORS,
    "cipher_suites": _TLS,
    "command_line_arguments": "`jumpmqctl environment` shows the settings in force",
    "consume_event_stream": "the log has a line for each login, refusal and change of a definition",
    "coordinator_status": _STATUS,
    "deactivate_free_disk_space_monitoring": _DISK,
    "decode": _SETTINGS,
    "decrypt_conf_value": _SETTINGS,
    "delete_member": _MEMBERS,
    "delete_replica": _MEMBERS,
    "directories": _PLUGINS,
    "disable": _PLUGINS,
    "disable_auth_attempt_source_tracking": _LOGINS,
    "discover_peers": "nodes find each other in etcd: `jumpmqctl cluster_status`",
    "enable_auth_attempt_source_tracking": _LOGINS,
    "enable_feature_flag": _FLAGS,
    "encode": _SETTINGS,
    "encrypt_conf_value": _SETTINGS,
    "erlang_cookie_hash": _ERLANG,
    "erlang_cookie_sources": _ERLANG,
    "erlang_version": _ERLANG,
    "eval": _ERLANG,
    "eval_file": _ERLANG,
    "exec": _ERLANG,
    "force_boot": "a node that runs alone serves its own queues; definitions wait for etcd",
    "force_gc": _ERLANG,
    "force_reset": _RESET,
    "force_standalone_khepri_boot": _ERLANG,
    "is_booting": "the broker answers when it has started: `jumpmqctl await_startup`",
    "join_cluster": _JOIN,
    "list_ciphers": _SETTINGS,
    "list_deprecated_features": _FLAGS,
    "list_feature_flags": _FLAGS,
    "list_hashes": _SETTINGS,
    "list_network_interfaces": "use the machine's `ip address`",
    "list_operator_policies_with_classic_queue_mirroring": _MIRRORS,
    "list_policies_with_classic_queue_mirroring": _MIRRORS,
    "list_policies_that_match": "`jumpmqctl list_queues name policy` shows the policy in force",
    "list_unresponsive_queues": "a queue has no process that could hang; `jumpmqctl explain QUEUE` gives the reason "
    "why messages are not delivered",
    "log_location": _LOG,
    "log_tail": _LOG,
    "log_tail_stream": _LOG,
    "maybe_stuck": _ERLANG,
    "memory_breakdown": "`GET /api/nodes/NAME/memory` and the page show the use of memory",
    "metadata_store_status": "definitions are in the data directory, or in the etcd of a cluster",
    "node_health_check": _NOTHING,
    "observer": _ERLANG,
    "os_env": "`jumpmqctl environment` shows the settings in force",
    "peek": "the page and `POST /api/queues/VHOST/NAME/get` show messages",
    "post_upgrade": "a new version needs no tasks after its start",
    "reclaim_quorum_memory": _ERLANG,
    "reconcile_vhosts": _VHOSTS,
    "remote_shell": _ERLANG,
    "remove_classic_queue_mirroring_from_policies": _MIRRORS,
    "rename_cluster_node": _NOTHING,
    "reset": _RESET,
    "reset_node_auth_attempt_metrics": _LOGINS,
    "resolve_hostname": "use the machine's `getent hosts NAME`",
    "resolver_info": _ERLANG,
    "restart_stream": "a stream has the leader of its home: `jumpmqctl transfer_leadership HOME NODE`",
    "restart_vhost": _VHOSTS,
    "revive": "use `jumpmqctl resume_listeners`: the node accepts clients again",
    "rotate_logs": _NOTHING,
    "runtime_thread_stats": _ERLANG,
    "schema_info": _ERLANG,
    "set_stream_retention_policy": "set a policy with max-age or max-length-bytes: `jumpmqctl set_policy`",
    "start_app": _STOP,
    "stop_app": _STOP,
    "stream_status": _STATUS,
    "tls_versions": _TLS,
    "update_cluster_nodes": _NOTHING,
}
"""By verb of RabbitMQ 4.0.5."""
