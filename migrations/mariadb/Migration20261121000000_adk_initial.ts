import { Migration20261121000000_adk_initial as OnMysql } from '../mysql/Migration20261121000000_adk_initial.js';

/** All tables, with MariaDB's name for the binary collation without padding. */
export class Migration20261121000000_adk_initial extends OnMysql {
  protected override readonly collation = 'utf8mb4_nopad_bin';
}
