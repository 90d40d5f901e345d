BEGIN TRANSACTION;
CREATE TABLE "experiments" (
	experiment_id INTEGER NOT NULL, 
	name VARCHAR(256) NOT NULL, 
	artifact_location VARCHAR(256), 
	lifecycle_stage VARCHAR(32), 
	creation_time BIGINT, 
	last_update_time BIGINT, 
	workspace VARCHAR(63) DEFAULT 'default' NOT NULL, 
	CONSTRAINT experiment_pk PRIMARY KEY (experiment_id), 
	CONSTRAINT experiments_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	CONSTRAINT uq_experiments_workspace_name UNIQUE (workspace, name)
);
INSERT INTO "experiments" VALUES(1,'digits','file:///data/artifacts','active',1795792991195,1795792991195,'default');
CREATE TABLE "metrics" (
	"key" VARCHAR(250) NOT NULL, 
	value FLOAT NOT NULL, 
	timestamp BIGINT NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	step BIGINT DEFAULT '0' NOT NULL, 
	is_nan BOOLEAN DEFAULT '0' NOT NULL, 
	CONSTRAINT metric_pk PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid), 
	CHECK (is_nan IN (0, 1))
);
INSERT INTO "metrics" VALUES('train/loss',1.0,1795792993083,'b057da8fca144810aa12bcaab616b38a',0,0);
INSERT INTO "metrics" VALUES('val/accuracy',0.0,1795792993083,'b057da8fca144810aa12bcaab616b38a',0,0);
INSERT INTO "metrics" VALUES('train/loss',0.5,1795792993735,'b057da8fca144810aa12bcaab616b38a',1,0);
INSERT INTO "metrics" VALUES('val/accuracy',0.2,1795792993735,'b057da8fca144810aa12bcaab616b38a',1,0);
INSERT INTO "metrics" VALUES('train/loss',3.33333333333333314829e-01,1795792994229,'b057da8fca144810aa12bcaab616b38a',2,0);
INSERT INTO "metrics" VALUES('val/accuracy',0.4,1795792994229,'b057da8fca144810aa12bcaab616b38a',2,0);
INSERT INTO "metrics" VALUES('train/loss',0.25,1795792994604,'b057da8fca144810aa12bcaab616b38a',3,0);
INSERT INTO "metrics" VALUES('val/accuracy',0.6,1795792994604,'b057da8fca144810aa12bcaab616b38a',3,0);
INSERT INTO "metrics" VALUES('train/loss',0.2,1795792995074,'b057da8fca144810aa12bcaab616b38a',4,0);
INSERT INTO "metrics" VALUES('val/accuracy',0.8,1795792995074,'b057da8fca144810aa12bcaab616b38a',4,0);
INSERT INTO "metrics" VALUES('high',1.79769313486231562234e+308,1795792995497,'b057da8fca144810aa12bcaab616b38a',5,0);
INSERT INTO "metrics" VALUES('odd',0.0,1795792995497,'b057da8fca144810aa12bcaab616b38a',5,1);
INSERT INTO "metrics" VALUES('loss',0.5,1795792996934,'0698a581e514493eb0ef9c19728d7c5a',0,0);
CREATE TABLE "params" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000) NOT NULL, 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT param_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "params" VALUES('lr','0.1','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "params" VALUES('opt','adam','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "params" VALUES('layers','[64, 10]','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "params" VALUES('seed','3','b057da8fca144810aa12bcaab616b38a');
CREATE TABLE "runs" (
	run_uuid VARCHAR(32) NOT NULL, 
	name VARCHAR(250), 
	source_type VARCHAR(20), 
	source_name VARCHAR(500), 
	entry_point_name VARCHAR(50), 
	user_id VARCHAR(256), 
	status VARCHAR(9), 
	start_time BIGINT, 
	end_time BIGINT, 
	source_version VARCHAR(50), 
	lifecycle_stage VARCHAR(20), 
	artifact_uri VARCHAR(200), 
	experiment_id INTEGER, deleted_time BIGINT, 
	CONSTRAINT run_pk PRIMARY KEY (run_uuid), 
	CONSTRAINT source_type CHECK (source_type IN ('NOTEBOOK', 'JOB', 'LOCAL', 'UNKNOWN', 'PROJECT')), 
	CONSTRAINT runs_lifecycle_stage CHECK (lifecycle_stage IN ('active', 'deleted')), 
	FOREIGN KEY(experiment_id) REFERENCES experiments (experiment_id), 
	CHECK (status IN ('SCHEDULED', 'FAILED', 'FINISHED', 'RUNNING', 'KILLED'))
);
INSERT INTO "runs" VALUES('b057da8fca144810aa12bcaab616b38a','first','UNKNOWN','','','ada','FINISHED',1795792991589,1795792995948,'','active','file:///data/artifacts/b057da8fca144810aa12bcaab616b38a/artifacts',1,NULL);
INSERT INTO "runs" VALUES('0698a581e514493eb0ef9c19728d7c5a','second','UNKNOWN','','','ada','FAILED',1795792996451,1795792997863,'','active','file:///data/artifacts/0698a581e514493eb0ef9c19728d7c5a/artifacts',1,NULL);
INSERT INTO "runs" VALUES('3d04f33996d045d48db345ce261d76e7','third','UNKNOWN','','','ada','FINISHED',1795792998625,1795792999843,'','deleted','file:///data/artifacts/3d04f33996d045d48db345ce261d76e7/artifacts',1,1795793000429);
CREATE TABLE "tags" (
	"key" VARCHAR(250) NOT NULL, 
	value VARCHAR(8000), 
	run_uuid VARCHAR(32) NOT NULL, 
	CONSTRAINT tag_pk PRIMARY KEY ("key", run_uuid), 
	FOREIGN KEY(run_uuid) REFERENCES runs (run_uuid)
);
INSERT INTO "tags" VALUES('mlflow.user','ada','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('mlflow.source.name','train.py','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('team','vision','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('mlflow.note.content','A *note*.','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('mlflow.runName','first','b057da8fca144810aa12bcaab616b38a');
INSERT INTO "tags" VALUES('mlflow.user','ada','0698a581e514493eb0ef9c19728d7c5a');
INSERT INTO "tags" VALUES('mlflow.source.name','train.py','0698a581e514493eb0ef9c19728d7c5a');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','0698a581e514493eb0ef9c19728d7c5a');
INSERT INTO "tags" VALUES('team','vision','0698a581e514493eb0ef9c19728d7c5a');
INSERT INTO "tags" VALUES('mlflow.runName','second','0698a581e514493eb0ef9c19728d7c5a');
INSERT INTO "tags" VALUES('mlflow.user','ada','3d04f33996d045d48db345ce261d76e7');
INSERT INTO "tags" VALUES('mlflow.source.name','train.py','3d04f33996d045d48db345ce261d76e7');
INSERT INTO "tags" VALUES('mlflow.source.type','LOCAL','3d04f33996d045d48db345ce261d76e7');
INSERT INTO "tags" VALUES('team','vision','3d04f33996d045d48db345ce261d76e7');
INSERT INTO "tags" VALUES('mlflow.runName','third','3d04f33996d045d48db345ce261d76e7');
CREATE INDEX index_metrics_run_uuid ON metrics (run_uuid);
CREATE INDEX index_params_run_uuid ON params (run_uuid);
CREATE INDEX index_tags_run_uuid ON tags (run_uuid);
CREATE INDEX idx_experiments_workspace ON experiments (workspace);
CREATE INDEX idx_experiments_workspace_creation_time ON experiments (workspace, creation_time);
CREATE INDEX index_metrics_run_uuid_key_step ON metrics (run_uuid, "key", step);
COMMIT;
