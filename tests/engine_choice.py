"""The tests on Ray and with forked workers that continuous integration runs: one or two for each promise.

A test on a cluster takes ten seconds or more. The rest of the contract suites runs there on local processes that are
executed, and in every way with `make test-all`.
"""

ON_RAY = frozenset(
    {
        # workers
        "test_a_killed_worker_is_named_and_ends_the_others",
        "test_an_exception_arrives_with_its_traceback_and_leaves_the_workers",
        "test_ctrl_c_ends_the_program_and_its_workers",
        "test_large_values_travel_both_ways",
        "test_no_worker_outlives_a_killed_program",
        "test_stop_is_seen_by_should_preempt",
        "test_torch_distributed_works_on_two_and_three_workers",
        "test_workers_start_again_with_fewer_and_with_more",
        # Ray itself
        "test_a_cluster_that_cannot_be_used_is_explained",
        "test_a_cluster_that_goes_away_is_named",
        "test_workers_for_which_there_is_no_room_are_refused_at_once",
        # trainers
        "test_a_trainer_on_ray_shrinks_and_grows_with_the_cluster",
        "test_a_training_is_paused_and_resumed_by_its_trial",
        "test_a_training_that_lost_a_worker_goes_on_with_as_many",
        # experiments
        "test_a_killed_master_finds_its_attempts_on_ray_again",
        "test_an_experiment_on_ray_is_paused_and_goes_on",
        "test_experiments_that_no_cluster_can_run_are_refused",
        "test_slots_of_a_ray_cluster_are_listed_with_their_trials",
        "test_a_trial_over_two_nodes_trains_as_two_ranks_on_one",
        "test_trials_ask_for_nodes_that_are_to_come_and_leave_those_that_end",
        "test_the_file_for_ray_up_fits_rays_own_schema",
        # experiments on nodes that do not see the home
        "test_a_node_that_is_cut_off_for_a_while_goes_on",
        "test_a_trial_goes_on_elsewhere_when_its_node_dies_with_its_spool",
        "test_records_of_nodes_that_do_not_see_the_home_come_home",
    }
)

FORKED = frozenset(
    {
        "test_a_killed_worker_is_named_and_ends_the_others",
        "test_an_exception_arrives_with_its_traceback_and_leaves_the_workers",
        "test_ctrl_c_ends_the_program_and_its_workers",
        "test_no_worker_outlives_a_killed_program",
        "test_sixty_four_workers_start_answer_and_end",
        "test_stop_is_seen_by_should_preempt",
        "test_torch_distributed_works_on_two_and_three_workers",
        "test_workers_are_forked_from_a_new_process_if_the_last_one_was_killed",
        "test_workers_start_again_with_fewer_and_with_more",
    }
)
